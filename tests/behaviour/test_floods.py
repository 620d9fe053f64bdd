"""A bad deploy pauses one event type; bad clients pause nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway import Event, PermanentError, RetryConfig, RetryPolicy, Service, Work
from headway.clock import Clock, SystemClock
from headway.facts import DeadLettered, EventRetryScheduled, FloodChanged
from headway.retrying import DEFAULT_CLASSIFIER, FloodRule, Stepped, Verdict, rules_for
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


def missing_number(event: Event) -> None:
    event.data["number"]


# Bad clients


def bad_first() -> Iterator[bool]:
    yield from [False] * 30
    yield from [True] * 100


def alternating() -> Iterator[bool]:
    yield from [False, True] * 30
    yield from [True] * 70


def in_lumps() -> Iterator[bool]:
    for _ in range(3):
        yield from [True] * 20
        yield from [False] * 10
    yield from [True] * 40


def bad_last() -> Iterator[bool]:
    yield from [True] * 100
    yield from [False] * 30


def refuse_by_data(shop: Shop) -> None:
    shop.on("OrderPlaced", lambda _: None, data=Order)


def refuse_by_rule(shop: Shop) -> None:
    own = rules_for([DeclinedError], Verdict.PERMANENT, name="shop.declined")
    shop.service.classifier = DEFAULT_CLASSIFIER.before([own])

    def decline(event: Event) -> None:
        if "number" not in event.data:
            raise DeclinedError

    shop.on("OrderPlaced", decline)


def refuse_by_permanent_error(shop: Shop) -> None:
    def decline(event: Event) -> None:
        if "number" not in event.data:
            raise PermanentError

    shop.on("OrderPlaced", decline)


def refuse_by_missing_field(shop: Shop) -> None:
    shop.on("OrderPlaced", lambda _: None, dedup="number")


def refuse_by_malformed(shop: Shop) -> None:
    shop.on("OrderPlaced", lambda _: None)


MIXTURES = [bad_first, alternating, in_lumps, bad_last]
REFUSALS = [
    refuse_by_data,
    refuse_by_rule,
    refuse_by_permanent_error,
    refuse_by_missing_field,
    refuse_by_malformed,
]


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("refuse", REFUSALS)
async def test_no_good_event_waits_for_30_invalid_ones(
    refuse: Callable[[Shop], None], mixture: Callable[[], Iterator[bool]]
) -> None:
    shop = in_memory()
    await publish_mixture(shop, refuse, mixture)
    start = shop.clock.now()
    async with shop.running():
        await shop.until(lambda: len(shop.done) == 100 and shop.letters == 30)
    assert set(shop.done.values()) == {start}, "a good event waited"
    assert shop.paused == []


async def publish_mixture(
    shop: Shop, refuse: Callable[[Shop], None], mixture: Callable[[], Iterator[bool]]
) -> None:
    refuse(shop)
    is_malformed = refuse is refuse_by_malformed
    for number, is_good in enumerate(mixture()):
        body = b"!" if is_malformed and not is_good else None
        data = {"number": number} if is_good else {}
        await shop.publish("OrderPlaced", data, body=body)


@pytest.mark.parametrize("refuse", [refuse_by_data, refuse_by_rule])
async def test_30_invalid_events_pause_nothing_on_any_engine(
    shop: Shop, refuse: Callable[[Shop], None]
) -> None:
    await publish_mixture(shop, refuse, bad_first)
    async with shop.running():
        await shop.until(lambda: len(shop.done) == 100 and shop.letters == 30)
    assert shop.paused == []


async def test_a_rule_of_ones_own_that_repeats_a_table_in_other_words_is_ones_own() -> None:
    shop = in_memory()
    table = next(rule for rule in DEFAULT_CLASSIFIER.rules if rule.name == "python.connection")
    shop.service.classifier = DEFAULT_CLASSIFIER.before([replace(table, verdict=Verdict.PERMANENT)])

    def refused(event: Event) -> None:
        raise ConnectionError

    shop.on("OrderPlaced", refused)
    for number in range(30):
        await shop.publish("OrderPlaced", {"number": number})
    async with shop.running():
        await shop.until(lambda: shop.letters == 30)
    assert shop.paused == []


async def test_a_function_of_the_service_that_names_the_work_may_be_a_bad_deploy() -> None:
    shop = in_memory()
    shop.on("OrderPlaced", lambda _: None, dedup=lambda event: str(event.data["no such field"]))
    for number in range(30):
        await shop.publish("OrderPlaced", {"number": number})
    async with shop.running():
        await shop.until(lambda: shop.paused == [("OrderPlaced", True)])


# A bad deploy


async def test_a_bad_deploy_pauses_its_event_type_and_no_other(shop: Shop) -> None:
    is_bad = True

    def deployed(event: Event) -> None:
        if is_bad:
            missing_number(event)

    shop.on("OrderPlaced", deployed)
    shop.on("OrderPaid", lambda _: None)
    for number in range(100):
        await shop.publish("OrderPlaced", {})
        await shop.publish("OrderPaid", {"number": number})
    async with shop.running() as worker:
        await shop.until(lambda: len(shop.done) == 100)
        assert {event_type for event_type, _ in shop.paused} == {"OrderPlaced"}
        assert shop.paused[-1] == ("OrderPlaced", True)
        assert shop.letters < 60
        is_bad = False
        worker.reload(RetryConfig())
        await shop.until(lambda: len(shop.done) + shop.letters == 200)
    assert shop.paused[-1] == ("OrderPlaced", False)


async def test_good_events_pass_behind_many_bad_ones(shop: Shop) -> None:
    shop.on("OrderPlaced", missing_number)
    for number in range(170):
        await shop.publish("OrderPlaced", {"number": number} if number >= 120 else {})
    async with shop.running():
        await shop.until(lambda: len(shop.done) == 50, at_most=30 * SECOND)
        await shop.until(lambda: shop.letters == 120)


async def test_when_the_cause_is_gone_good_events_pass_a_bad_one_at_the_head() -> None:
    shop = in_memory()
    is_down = True

    def call(event: Event) -> None:
        if is_down or event.event_id == bad:
            raise KeyError("the answer of a partner lacks a field")

    shop.on("OrderPlaced", call)
    for _ in range(20):
        await shop.publish("OrderPlaced", {})
    async with shop.running():
        await shop.until(lambda: shop.paused == [("OrderPlaced", True)])
        bad = await shop.publish("OrderPlaced", {})
        is_down = False
        start = shop.clock.now()
        for _ in range(20):
            await shop.publish("OrderPlaced", {})
        await shop.until(lambda: len(shop.done) == 20, at_most=5 * SECOND)
    assert max(shop.done.values()) - start < 5 * SECOND
    assert shop.letters == 21


async def test_probes_are_few_and_take_different_events() -> None:
    shop = in_memory()
    shop.on("OrderPlaced", missing_number)
    for _ in range(500):
        await shop.publish("OrderPlaced", {})
    async with shop.running():
        await shop.until(lambda: bool(shop.paused))
        first = FloodRule().at_least
        await shop.clock.wait(MINUTE)
        assert len(shop.tried) - first == 10, "five at once, then after 1, 3, 7, 15 and 31 seconds"
        await shop.clock.wait(10 * MINUTE)
        assert len(shop.tried) - first == 20, "and then one a minute"
    assert len(set(shop.tried)) == len(shop.tried) == shop.letters
    assert await shop.ready("shop.order.placed") == 500 - shop.letters
    places = [int(name.rpartition("-")[2]) for name in shop.tried[first:]]
    assert places != sorted(places), "they are not those at the head"


async def test_refused_events_at_the_head_cost_no_probe() -> None:
    shop = in_memory()
    is_bad = True

    def deployed(event: Event) -> None:
        if is_bad:
            raise TypeError

    shop.on("OrderPlaced", deployed, data=Order)
    for number in range(20):
        await shop.publish("OrderPlaced", {"number": number})
    async with shop.running():
        await shop.until(lambda: bool(shop.paused))
        await shop.clock.wait(10 * MINUTE)
        is_bad = False
        for _ in range(50):
            await shop.publish("OrderPlaced", {"number": "none"})
        await shop.publish("OrderPlaced", {"number": 1})
        await shop.until(lambda: bool(shop.done), at_most=2 * SECOND)
        await shop.until(lambda: shop.letters == 70)


async def test_an_answer_of_the_handler_ends_a_pause() -> None:
    shop = in_memory()
    own = rules_for([DeclinedError], Verdict.PERMANENT, name="shop.declined")
    shop.service.classifier = DEFAULT_CLASSIFIER.before([own])
    error: Exception = KeyError("a bad deploy")

    def call(event: Event) -> None:
        raise error

    shop.on("OrderPlaced", call)
    for number in range(60):
        await shop.publish("OrderPlaced", {"number": number})
    async with shop.running():
        await shop.until(lambda: bool(shop.paused))
        error = DeclinedError("that card")
        await shop.until(lambda: shop.letters == 60, at_most=5 * SECOND)
    assert shop.paused == [("OrderPlaced", True), ("OrderPlaced", False)]


async def test_a_pause_costs_no_event_its_time_to_live() -> None:
    shop = in_memory()
    shop.service.transient = RetryPolicy(
        max_attempts=3, backoff=Stepped(steps=(5 * SECOND,)), ttl=30 * MINUTE
    )
    error: Exception | None = KeyError("a bad deploy")

    def call(event: Event) -> None:
        if error is not None:
            raise error

    shop.on("OrderPlaced", call)
    for number in range(200):
        await shop.publish("OrderPlaced", {"number": number})
    async with shop.running() as worker:
        await shop.until(lambda: bool(shop.paused))
        await shop.clock.wait(60 * MINUTE)
        before = shop.letters
        error = RuntimeError("a fault of its own")
        worker.reload(RetryConfig())
        await shop.clock.wait(2 * SECOND)
        assert len(shop.facts.of(EventRetryScheduled)) == 200 - before
        error = None
        await shop.until(lambda: len(shop.done) == 200 - before)
    assert shop.letters == before
