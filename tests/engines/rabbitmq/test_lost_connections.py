"""Returns of events: a worker that died counts, a worker that only lost its connection does not."""

from collections.abc import AsyncIterator

import pytest

from headway.testing.conformance.examples import ORDERS, opened, publish, take, take_one
from headway.testing.engines import without_store
from headway.testing.ports import SUSPECT_AFTER, Delivery, Done, Engine, HandedBack
from headway.testing.proxy import Proxy
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq.engine import RabbitEngineHarness

pytestmark = pytest.mark.usefixtures("coarse_delays")
NAMES = [f"event-{number}" for number in range(40)]


class Harness(RabbitEngineHarness):
    """Workers whose connections can be cut."""

    def __init__(self, url: str, server: RabbitMQ) -> None:
        super().__init__(url)
        self.proxy = Proxy("127.0.0.1", server.port)

    async def worker(self, *, by_proxy: bool = False) -> Engine:
        if not by_proxy:
            return await opened(self, [ORDERS])
        with_proxy = RabbitEngineHarness(self.proxy.through(self.url))
        self.parts.append(parts := with_proxy.open_parts(for_worker=True))
        await parts.bus.open([ORDERS])
        return without_store(parts)


@pytest.fixture
async def harness(rabbitmq_vhost: str, rabbitmq_server: RabbitMQ) -> AsyncIterator[Harness]:
    harness = Harness(rabbitmq_vhost, rabbitmq_server)
    async with harness.proxy:
        yield harness
        harness.proxy.heal()
        await harness.close()


async def ran_alone(harness: Harness, engine: Engine) -> tuple[bool, Delivery]:
    """Take the one event; say whether it comes as a suspect."""
    delivery = await take_one(harness, engine)
    return delivery.returns >= SUSPECT_AFTER, delivery


# Other tests share the broker. One run of them ended with 541 (INTERNAL_ERROR) for every queue
# declared after these kills, so three kills in a row belong to `make chaos`.
@pytest.mark.parametrize(
    "loss",
    [
        "the connection is cut",
        pytest.param("the broker is killed", marks=pytest.mark.chaos),
    ],
)
async def test_what_a_living_worker_held_never_becomes_a_suspect(
    harness: Harness, rabbitmq_server: RabbitMQ, loss: str
) -> None:
    worker = await harness.worker(by_proxy=True)
    await publish(worker, *NAMES)
    for name in (ORDERS.name, f"{ORDERS.name}.suspects", ORDERS.failed, "headway.starts.shop"):
        rabbitmq_server.wait_for_quorum_queue(harness.url, name)
    for _ in range(3):
        await take(harness, worker, len(NAMES) // 2)  # the others have arrived, and wait
        if loss == "the broker is killed":
            rabbitmq_server.kill()
            rabbitmq_server.start()
        else:
            harness.proxy.cut()
    taken = await take(harness, worker, len(NAMES))
    assert {each.travel.operation for each in taken} == set(NAMES)
    assert max(each.returns for each in taken) < SUSPECT_AFTER
    assert all(await worker.bus.settle([(each, Done()) for each in taken]))


async def test_another_worker_knows_what_a_living_one_lost_and_a_death_still_counts(
    harness: Harness,
) -> None:
    living = await harness.worker(by_proxy=True)
    await publish(living, "event")
    for _ in range(2):
        await take_one(harness, living)
        harness.proxy.cut()
    await take_one(harness, living)
    await harness.kill(living)  # the third return, and the first that counts
    for expected in (False, True):
        other = await harness.worker()
        is_suspect, delivery = await ran_alone(harness, other)
        assert is_suspect is expected
        await other.bus.settle([(delivery, HandedBack())])  # and no hand forgets the count
        is_suspect, _ = await ran_alone(harness, other)
        assert is_suspect is expected
        await harness.kill(other)


async def test_worker_that_is_away_leaves_no_suspect_behind(harness: Harness) -> None:
    """It cannot note anything while it is away: one return of that kind is free."""
    away, other = await harness.worker(by_proxy=True), await harness.worker()
    await publish(away, *NAMES)
    await take(harness, away, len(NAMES))
    harness.proxy.cut()
    await take(harness, away, len(NAMES))
    harness.proxy.refuse()
    harness.proxy.cut()
    taken = await take(harness, other, len(NAMES))
    assert max(each.returns for each in taken) < SUSPECT_AFTER
    assert all(await other.bus.settle([(each, Done()) for each in taken]))
    harness.proxy.heal()
