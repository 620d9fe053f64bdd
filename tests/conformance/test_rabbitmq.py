from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from headway.adapters.rabbitmq.topology import VERSIONS, marker
from headway.testing.conformance.bus import BusConformance
from headway.testing.conformance.examples import ORDERS, message, opened, take
from tests.engines.rabbitmq.by_hand import channel_to
from tests.engines.rabbitmq.harness import RabbitBusHarness

pytestmark = pytest.mark.usefixtures("coarse_delays")


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitBusHarness]:
    harness = RabbitBusHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


class TestBus(BusConformance): ...


async def test_what_is_on_its_way_to_a_worker_that_stops_taking_is_no_suspect(
    harness: RabbitBusHarness,
) -> None:
    """To hand it back must count nothing: no worker died of it."""
    first = await opened(harness)
    await first.bus.publish([message(f"{n}", body=bytes(4_000)) for n in range(1_000)])
    for _ in range(2):
        engine = await opened(harness)
        assert await engine.bus.take([ORDERS.name], 500, 20 * harness.moment)
        await engine.bus.close()  # while the broker is still sending
    taken = await take(harness, first, 1_000)
    assert Counter(each.returns for each in taken) == {0: 1_000}


async def test_versions_outlive_what_operators_and_other_programs_do_to_their_queues(
    harness: RabbitBusHarness,
) -> None:
    first, second = await opened(harness), await opened(harness)
    for engine, version in ((first, "1"), (second, "2")):
        await engine.bus.announce("shop", version, [ORDERS.name], timedelta(seconds=5))
    with channel_to(harness.url) as by_hand:
        for garbage in (b"\xff", b"[]", b'{"headway.version.shop/3": {"version": 3, "queues": 1}}'):
            by_hand.basic_publish("", VERSIONS, garbage)
        forged = b'{"headway.version.shop/3": {"version": "3", "queues": ["shop.orders"]}}'
        by_hand.basic_publish("", VERSIONS, forged)
        assert set(await first.bus.live_versions(ORDERS.name)) == {"1", "2"}
        for queue in (VERSIONS, marker("shop", "1"), marker("shop", "2")):
            by_hand.queue_delete(queue)
        deadline = harness.clock.now() + timedelta(seconds=30)
        while set(await first.bus.live_versions(ORDERS.name)) != {"1", "2"}:
            assert harness.clock.now() < deadline
            await harness.pass_time(harness.moment)
