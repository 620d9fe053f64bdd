"""A bus without a store: at least once, and clear words about all that needs more."""

import asyncio
import logging
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import pytest

from headway import ConfigurationError, Event, Lifecycle, Service, Work
from headway.runtime.storeless import BusOnly
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
    take_one,
    unit,
)
from headway.testing.engines import Publisher, Worker
from headway.testing.facts import Recorder
from headway.testing.ports import Beginning, Engine, Increment, Outcome
from tests.engines.pairs.doom import Doom, KilledError, doomed
from tests.engines.pairs.harnesses import BusHarness, bus_parts

MINUTE = timedelta(minutes=1)


@pytest.fixture
def harness() -> BusHarness:
    return BusHarness()


class Counting:
    """Counts the calls of a bus."""

    def __init__(self, bus: Any) -> None:
        self._bus = bus
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._bus, name)


async def test_a_group_that_is_simply_done_costs_one_call(harness: BusHarness) -> None:
    parts = bus_parts(harness.state, harness.clock)
    bus, letters = Counting(parts.bus), Counting(parts.letters)
    engine = await opened(harness)
    await publish(engine, *"abc")
    await parts.bus.open([ORDERS])
    taken = await parts.bus.take([ORDERS.name], 3)
    units = [unit(delivery, harness.clock.now()) for delivery in taken]
    assert kinds(await BusOnly(bus, letters).finish(units)) == [Outcome.COMMITTED] * 3
    assert (bus.calls, letters.calls) == (["settle"], [])
    assert await BusOnly(bus, letters).finish([]) == []
    assert bus.calls == ["settle"]


async def test_what_has_to_be_sent_is_sent_before_the_delivery_is_settled(
    harness: BusHarness,
) -> None:
    doom = Doom()
    parts = doomed(bus_parts(harness.state, harness.clock), doom)
    engine = await opened(harness)
    await publish(engine, "a", "b")
    first, second = await take(harness, engine, 2)
    now = harness.clock.now()
    out = message("out", queue=MAILS.name)
    units = [unit(first, now, outgoing=(out,)), failing(second, now)]
    doom.at = 5  # all is sent, and nothing is settled yet
    with pytest.raises(KilledError):
        await BusOnly(parts.bus, parts.letters).finish(units)
    assert doom.steps == ["write letters", "publish"]
    await harness.kill(engine)
    engine = await opened(harness)
    assert operations(await take(harness, engine, 2)) == ["a", "b"]
    assert operations(await take(harness, engine, 1, MAILS.name)) == ["out"]
    assert len(await engine.letters.read(ORDERS.failed, 10)) == 1


async def test_writes_and_bodies_are_refused_with_the_setting_that_cures_it(
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
    assert str(finishes[0].error) == (
        "writing to work.documents needs a store, and HEADWAY_STORE is not set: set "
        "HEADWAY_STORE, for example to sqlite:///headway.db"
    )
    assert "work.transaction needs a store" in str(finishes[2].error)
    await harness.kill(engine)
    assert operations(await take(harness, await opened(harness), 2)) == ["a", "c"]


async def test_who_lost_a_delivery_is_told(harness: BusHarness) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    await harness.kill(engine)
    assert kinds(await engine.finisher.finish([unit(delivery, harness.clock.now())])) == [
        Outcome.LOST
    ]


async def test_documents_are_refused_and_records_find_nothing(harness: BusHarness) -> None:
    engine = await opened(harness)
    now = harness.clock.now()
    beginning = Beginning(lifecycle=Lifecycle("docs"), ids=("1",), operation="a", now=now)
    asked: Awaitable[Any]
    for asked in (
        engine.documents.fetch("docs", ["1"]),
        engine.documents.find("docs", {}, 1),
        engine.documents.begin([beginning]),
        engine.documents.renew("docs", {"1": "token"}, now),
    ):
        with pytest.raises(ConfigurationError, match="'docs' needs a store, and HEADWAY_STORE"):
            await asked
    assert await engine.records.find(["a"]) == {}
    assert list(await engine.records.undispatched(now, 1)) == []
    await engine.records.dispatched(["a"])
    assert await engine.records.forget(now, 1) == 0


# Services


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


async def test_a_service_that_only_publishes_runs_and_says_that_it_is_at_least_once(
    harness: BusHarness, caplog: pytest.LogCaptureFixture
) -> None:
    orders, mails = Service("orders"), Service("mails")
    seen: list[Any] = []

    @orders.on("OrderPlaced")
    async def order(event: Event, work: Work) -> None:
        work.publish("OrderPaid", {"order": event.data["order"]})

    @mails.on("OrderPaid")
    async def mail(event: Event, _work: Work) -> None:
        seen.append(event.data)

    with caplog.at_level(logging.INFO, "headway"):
        await ran(harness, orders, mails)
    assert seen == [{"order": 1}]
    (said,) = [each for each in caplog.records if "at least once" in each.getMessage()]
    assert said.levelno == logging.WARNING
    assert "set HEADWAY_STORE" in said.getMessage()
    assert "work.documents and work.transaction are refused" in said.getMessage()


@pytest.mark.parametrize("what", ["reads", "writes", "transaction"])
async def test_a_handler_that_needs_a_store_ends_as_a_letter_that_says_so(
    harness: BusHarness, what: str
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


def test_a_service_about_documents_is_refused_before_it_runs(harness: BusHarness) -> None:
    orders = Service("orders")

    @orders.on("OrderPlaced", documents=("stock", "apples"))
    async def order(_event: Event, _work: Work) -> None: ...

    engine = asyncio.run(harness.open_engine())
    with pytest.raises(ConfigurationError, match=r"'orders'.*OrderPlaced.* HEADWAY_STORE"):
        Worker([orders], engine, clock=harness.clock, chance=Seeded(), observer=Recorder())
