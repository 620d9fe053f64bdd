"""The shipped suites of a bus, on RabbitMQ."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from headway.testing.conformance.bus import BusConformance
from headway.testing.conformance.examples import ORDERS, message, opened, take
from tests.engines.rabbitmq.engine import QuickRabbitHarness

pytestmark = pytest.mark.usefixtures("coarse_delays")


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[QuickRabbitHarness]:
    harness = QuickRabbitHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


class TestBus(BusConformance): ...


async def test_what_is_on_its_way_to_a_worker_that_stops_taking_is_no_suspect(
    harness: QuickRabbitHarness,
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
