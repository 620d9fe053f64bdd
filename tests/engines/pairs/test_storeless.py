"""A bus without a store: at least once, and a refusal of all that needs more."""

import asyncio
from datetime import timedelta

import pytest

from headway import ConfigurationError, Event, Service, Work
from headway.testing.chance import Seeded
from headway.testing.conformance.examples import (
    MAILS,
    ORDERS,
    failing,
    kinds,
    message,
    opened,
    operations,
    publish,
    take,
    unit,
)
from headway.testing.engines import Publisher, Worker, without_store
from headway.testing.facts import Recorder
from headway.testing.ports import Engine, Increment, Outcome
from tests.engines.pairs.doom import Doom, KilledError, doomed
from tests.engines.pairs.harnesses import BusHarness, bus_parts


@pytest.fixture
def harness() -> BusHarness:
    return BusHarness()


async def test_what_has_to_be_sent_is_sent_before_the_delivery_is_settled(
    harness: BusHarness,
) -> None:
    doom = Doom()
    doomed_engine = without_store(doomed(bus_parts(harness.state, harness.clock), doom))
    engine = await opened(harness)
    await publish(engine, "a", "b")
    first, second = await take(harness, engine, 2)
    now = harness.clock.now()
    units = [unit(first, now, outgoing=(message("out", queue=MAILS.name),)), failing(second, now)]
    doom.at = 5  # all is sent, and nothing is settled yet
    with pytest.raises(KilledError):
        await doomed_engine.finisher.finish(units)
    assert doom.steps == ["write letters", "publish"]
    await harness.kill(engine)
    engine = await opened(harness)
    assert operations(await take(harness, engine, 2)) == ["a", "b"]
    assert operations(await take(harness, engine, 1, MAILS.name)) == ["out"]
    assert len(await engine.letters.read(ORDERS.failed, 10)) == 1


async def test_writes_and_bodies_are_refused_and_their_events_come_back(
    harness: BusHarness,
) -> None:
    engine = await opened(harness)
    await publish(engine, *"abc")
    first, second, third = await take(harness, engine, 3)
    now = harness.clock.now()
    finishes = await engine.finisher.finish(
        [
            unit(first, now, writes=(Increment("docs", "1", "n"),)),
            unit(second, now),
            unit(third, now, bodies=(print,)),
        ]
    )
    assert kinds(finishes) == [Outcome.REFUSED, Outcome.COMMITTED, Outcome.REFUSED]
    for refused in (finishes[0], finishes[2]):
        assert "HEADWAY_STORE" in str(refused.error)
    await harness.kill(engine)
    assert kinds(await engine.finisher.finish([unit(first, now)])) == [Outcome.LOST]
    assert operations(await take(harness, await opened(harness), 2)) == ["a", "c"]


async def ran(harness: BusHarness, *services: Service) -> Engine:
    """Let a worker handle one order, and all that comes of it, to its end."""
    engine = await opened(harness, [queue for each in services for queue in each.queues()])
    await Publisher(engine.bus, harness.clock, Seeded()).publish("OrderPlaced", {"order": 1})
    worker = Worker(
        services,
        await harness.open_engine(),
        clock=harness.clock,
        chance=Seeded(),
        observer=Recorder(),
    )
    running = asyncio.create_task(worker.run())
    while (await engine.places.depths()).waiting:
        await harness.pass_time(timedelta(seconds=1))
    worker.stop()
    await running
    return engine


@pytest.mark.parametrize("what", ["reads", "writes", "transaction"])
async def test_a_handler_that_needs_a_store_ends_as_a_dead_letter_that_says_so(
    harness: BusHarness, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced", failed="OrderFailed")
    async def order(_event: Event, work: Work) -> None:
        if what == "reads":
            await work.documents("stock").require("apples")
        elif what == "writes":
            work.documents("stock").increment("apples", "taken")
        else:
            work.transaction(print)

    engine = await ran(harness, orders)
    (letter,) = await engine.letters.read("orders.failed", 10)
    assert letter.abandoned_reason == "non_retryable"
    assert "HEADWAY_STORE" in letter.last_error
    said = [each.levelname for each in caplog.records if "HEADWAY_STORE" in each.getMessage()]
    assert "WARNING" in said  # at the start: it is at least once


async def test_a_service_about_documents_is_refused_before_it_runs(harness: BusHarness) -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced", documents=("stock", "apples"))
    async def order(_event: Event, _work: Work) -> None: ...

    with pytest.raises(ConfigurationError, match=r"'orders'.*OrderPlaced.* HEADWAY_STORE"):
        await ran(harness, orders)
