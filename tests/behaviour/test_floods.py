"""A bad deploy pauses one event type; bad clients pause nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway import Event, PermanentError, RetryConfig, Service, Work
from headway.clock import Clock, SystemClock
from headway.facts import DeadLettered, EventRetryScheduled, FloodChanged
from headway.retrying import DEFAULT_CLASSIFIER, FloodRule, Verdict, rules_for
from headway.testing.chance import Seeded
from headway.testing.clock import VirtualClock
from headway.testing.engines import (
    Publisher,
    State,
    Worker,
    memory_engine,
    sqlite_engine,
    without_store,
)
from headway.testing.facts import Recorder
from headway.testing.ports import Engine
from tests.behaviour.scenes import MINUTE, SECOND
from tests.engines.rabbitmq.engine import RabbitEngineHarness

SOON = FloodRule(probe_every=timedelta(milliseconds=200))
"""For engines on which time is real."""


class DeclinedError(Exception):
    """The card of one customer was refused."""


class Order(msgspec.Struct):
    number: int


class Shop:
    """A service on any engine, and when each of its events was handled."""

    def __init__(self, open_engine: Callable[[], Engine], clock: Clock) -> None:
        self._open_engine = open_engine
        self.clock = clock
        self.facts = Recorder()
        self.service = Service("shop", flood=SOON if self.is_real else FloodRule())
        self.tried: list[str] = []
        self.done: dict[str, datetime] = {}
        self._desk = open_engine()
        self._publisher = Publisher(self._desk.bus, clock, Seeded())
        self._published = 0
        self.error: Exception | None = None
        self.bad = ""

    @property
    def is_real(self) -> bool:
        return isinstance(self.clock, SystemClock)

    def on(self, event_type: str, fails: Callable[[Event], object], **options: Any) -> None:
        """Handle a type; `fails` may raise."""

        @self.service.on(event_type, **options)
        async def handle(event: Event, work: Work) -> None:
            self.tried.append(event.event_id)
            fails(event)
            self.done[event.event_id] = self.clock.now()

    def fail(self, event: Event) -> None:
        """Raise what the test said, and for one bad event always something."""
        if self.error is not None:
            raise self.error
        if event.event_id == self.bad:
            raise KeyError("its own")

    async def publish_many(self, count: int) -> None:
        for number in range(count):
            await self.publish("OrderPlaced", {"number": number})

    async def publish(self, event_type: str, data: Any, *, body: bytes | None = None) -> str:
        if not self._published:
            await self._desk.open(list(self.service.queues()))
        self._published += 1
        if body is not None:
            await self._publisher.publish_bytes(body, event_type)
            return ""
        event_id = f"{event_type}-{self._published}"
        await self._publisher.publish(event_type, data, event_id=event_id)
        return event_id

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Worker]:
        worker = Worker(
            [self.service],
            self._open_engine(),
            clock=self.clock,
            chance=Seeded(),
            observer=self.facts,
        )
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await task

    async def until(self, holds: Callable[[], bool], at_most: timedelta = MINUTE) -> None:
        start = self.clock.now()
        while not holds():
            assert self.clock.now() - start < at_most, "it never came to that"
            await self.clock.wait(timedelta(milliseconds=20))

    @property
    def letters(self) -> int:
        return len(self.facts.of(DeadLettered))

    @property
    def paused(self) -> list[tuple[str, bool]]:
        return [(fact.event_type, fact.paused) for fact in self.facts.of(FloodChanged)]

    async def ready(self, queue: str) -> int:
        depths = await self._desk.places.depths()
        return next(each.ready for each in depths.queues if each.queue == queue)

    async def close(self) -> None:
        await self._desk.close()


ENGINES = ["memory", "sqlite", pytest.param("rabbitmq", marks=pytest.mark.server("rabbitmq"))]


@pytest.fixture(params=ENGINES)
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    if request.param == "memory":
        shop = in_memory()
    elif request.param == "sqlite":
        shop = Shop(
            lambda: sqlite_engine(tmp_path / "h.db", SystemClock(), Seeded(), synchronous="off"),
            SystemClock(),
        )
    else:
        request.getfixturevalue("coarse_delays")
        harness = RabbitEngineHarness(request.getfixturevalue("rabbitmq_vhost"))
        shop = Shop(lambda: without_store(harness.open_parts()), SystemClock())
    yield shop
    await shop.close()


def in_memory() -> Shop:
    clock, state = VirtualClock(), State()
    return Shop(lambda: memory_engine(clock, Seeded(), state), clock)


# Bad clients


MIXTURES = {
    "bad first": [False] * 30 + [True] * 100,
    "alternating": [False, True] * 30 + [True] * 70,
    "in lumps": ([True] * 20 + [False] * 10) * 3 + [True] * 40,
    "bad last": [True] * 100 + [False] * 30,
}


def refuse_by_data(shop: Shop) -> None:
    shop.on("OrderPlaced", lambda _: None, data=Order)


def refuse_by_rule(shop: Shop) -> None:
    own = rules_for([DeclinedError], Verdict.PERMANENT, name="shop.declined")
    shop.service.classifier = DEFAULT_CLASSIFIER.before([own])
    shop.on("OrderPlaced", decline_by(DeclinedError))


def refuse_by_a_table_in_other_words(shop: Shop) -> None:
    table = next(rule for rule in DEFAULT_CLASSIFIER.rules if rule.name == "python.connection")
    own = replace(table, verdict=Verdict.PERMANENT)
    shop.service.classifier = DEFAULT_CLASSIFIER.before([own])
    shop.on("OrderPlaced", decline_by(ConnectionError))


def refuse_by_permanent_error(shop: Shop) -> None:
    shop.on("OrderPlaced", decline_by(PermanentError))


def decline_by(error: type[Exception]) -> Callable[[Event], None]:
    def decline(event: Event) -> None:
        if "number" not in event.data:
            raise error

    return decline


def refuse_by_missing_field(shop: Shop) -> None:
    shop.on("OrderPlaced", lambda _: None, dedup="number")


def refuse_by_malformed(shop: Shop) -> None:
    shop.on("OrderPlaced", lambda _: None)


REFUSALS = [
    refuse_by_data,
    refuse_by_rule,
    refuse_by_a_table_in_other_words,
    refuse_by_permanent_error,
    refuse_by_missing_field,
    refuse_by_malformed,
]


@pytest.mark.parametrize(
    ("refuse", "mixture"),
    [
        *((refuse, "bad first") for refuse in REFUSALS),
        *((refuse_by_rule, mixture) for mixture in MIXTURES),
    ],
)
async def test_no_good_event_waits_for_30_invalid_ones(
    refuse: Callable[[Shop], None], mixture: str
) -> None:
    shop = in_memory()
    await publish_mixture(shop, refuse, MIXTURES[mixture])
    start = shop.clock.now()
    async with shop.running():
        await shop.until(lambda: len(shop.done) == 100 and shop.letters == 30)
    assert set(shop.done.values()) == {start}, "a good event waited"
    assert shop.paused == []


async def publish_mixture(
    shop: Shop, refuse: Callable[[Shop], None], mixture: Sequence[bool]
) -> None:
    refuse(shop)
    is_malformed = refuse is refuse_by_malformed
    for number, is_good in enumerate(mixture):
        body = b"!" if is_malformed and not is_good else None
        data = {"number": number} if is_good else {}
        await shop.publish("OrderPlaced", data, body=body)


async def test_30_invalid_events_pause_nothing_on_any_engine(shop: Shop) -> None:
    await publish_mixture(shop, refuse_by_data, MIXTURES["bad first"])
    async with shop.running():
        await shop.until(lambda: len(shop.done) == 100 and shop.letters == 30)
    assert shop.paused == []


async def test_a_function_of_the_service_that_names_the_work_may_be_a_bad_deploy() -> None:
    shop = in_memory()
    shop.on("OrderPlaced", lambda _: None, dedup=lambda event: str(event.data["no such field"]))
    await shop.publish_many(30)
    async with shop.running():
        await shop.until(lambda: shop.paused == [("OrderPlaced", True)])


# A bad deploy


async def test_a_bad_deploy_pauses_its_event_type_and_no_other(shop: Shop) -> None:
    shop.on("OrderPlaced", shop.fail)
    shop.on("OrderPaid", lambda _: None)
    shop.error = KeyError("a bad deploy")
    for _ in range(100):
        await shop.publish("OrderPlaced", {})
        await shop.publish("OrderPaid", {})
    async with shop.running() as worker:
        await shop.until(lambda: len(shop.done) == 100)
        assert {event_type for event_type, _ in shop.paused} == {"OrderPlaced"}
        assert shop.paused[-1] == ("OrderPlaced", True)
        assert shop.letters < 60
        shop.error = None
        worker.reload(RetryConfig())
        await shop.until(lambda: len(shop.done) + shop.letters == 200)
    assert shop.paused[-1] == ("OrderPlaced", False)


@asynccontextmanager
async def paused(count: int, **options: Any) -> AsyncIterator[tuple[Shop, Worker]]:
    """Have a worker whose event type pauses, because every one of these events fails."""
    shop = in_memory()
    shop.on("OrderPlaced", shop.fail, **options)
    shop.error = KeyError("a bad deploy")
    await shop.publish_many(count)
    async with shop.running() as worker:
        await shop.until(lambda: bool(shop.paused))
        yield shop, worker


async def test_when_the_cause_is_gone_good_events_pass_a_bad_one_at_the_head() -> None:
    async with paused(20) as (shop, _):
        shop.bad = await shop.publish("OrderPlaced", {})
        shop.error = None
        await shop.publish_many(20)
        await shop.until(lambda: len(shop.done) == 20, at_most=5 * SECOND)
    assert shop.letters == 21


async def test_probes_are_few_and_take_different_events() -> None:
    async with paused(500) as (shop, _):
        first = FloodRule().at_least
        await shop.clock.wait(MINUTE)
        assert len(shop.tried) - first == 10, "five at once, then after 1, 3, 7, 15 and 31 seconds"
        await shop.clock.wait(10 * MINUTE)
        assert len(shop.tried) - first == 20, "and then one a minute"
    assert len(set(shop.tried)) == len(shop.tried) == shop.letters
    assert await shop.ready("shop.order.placed") == 500 - shop.letters
    places = [int(name.rpartition("-")[2]) for name in shop.tried[first:]]
    assert places != sorted(places), "they are not those at the head"


async def test_an_answer_of_the_handler_ends_a_pause() -> None:
    async with paused(60) as (shop, _):
        shop.error = PermanentError("that card")
        await shop.until(lambda: shop.letters == 60, at_most=5 * SECOND)
    assert shop.paused == [("OrderPlaced", True), ("OrderPlaced", False)]


async def test_a_type_can_pause_a_second_time() -> None:
    async with paused(100) as (shop, _):
        for published in (100, 200):
            shop.error = None
            while len(shop.done) + shop.letters < published:
                await shop.clock.wait(SECOND)
            assert shop.paused[-1] == ("OrderPlaced", False)
            await shop.clock.wait(2 * MINUTE)
            shop.error = KeyError("bad again")
            await shop.publish_many(100)
            await shop.until(lambda: shop.paused[-1] == ("OrderPlaced", True))


async def test_a_busy_service_that_turns_bad_does_not_pour_out_all_that_it_has_taken() -> None:
    shop = in_memory()
    shop.on("OrderPlaced", shop.fail)
    await shop.publish_many(1000)
    async with shop.running():
        await shop.until(lambda: len(shop.done) == 1000)
        await shop.clock.wait(2 * MINUTE)
        shop.error = ValueError("a bad producer")
        await shop.publish_many(500)
        await shop.until(lambda: bool(shop.paused))
        await shop.clock.wait(30 * SECOND)
        assert shop.letters < 100


async def test_a_pause_costs_no_event_its_time_to_live() -> None:
    async with paused(200) as (shop, worker):
        await shop.clock.wait(60 * MINUTE)
        before = shop.letters
        shop.error = RuntimeError("a fault of its own")
        worker.reload(RetryConfig())
        await shop.clock.wait(2 * SECOND)
        assert len(shop.facts.of(EventRetryScheduled)) == 200 - before
        shop.error = None
        await shop.until(lambda: len(shop.done) == 200 - before)
    assert shop.letters == before
