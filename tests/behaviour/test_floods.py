"""A bad deploy pauses one event type; bad clients pause nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway import Event, PermanentError, RetryConfig, Service, Work
from headway.clock import SystemClock
from headway.facts import DeadLettered, EventRetryScheduled, FloodChanged
from headway.retrying import DEFAULT_CLASSIFIER, FloodRule, Verdict, rules_for
from headway.testing.chance import Seeded
from headway.testing.engines import Publisher, Worker, sqlite_engine, without_store
from headway.testing.facts import Recorder
from headway.testing.ports import Engine
from headway.testing.trial import Trial
from tests.behaviour.scenes import MINUTE, SECOND, until
from tests.engines.rabbitmq.engine import RabbitEngineHarness


class Order(msgspec.Struct):
    number: int


class Shop:
    """A service whose handler fails as the test says, and when each of its events was handled."""

    def __init__(self, **options: Any) -> None:
        self.error: Exception | None = None
        self.bad = ""
        self.refusal: type[Exception] | None = None
        self.tried: list[str] = []
        self.done: dict[str, datetime] = {}
        self.service = Service("shop")
        self.service.on("OrderPlaced", **options)(self._handle)
        self.trial = Trial(self.service)
        self._published = 0

    async def _handle(self, event: Event, work: Work) -> None:
        self.tried.append(event.event_id)
        if self.error is not None:
            raise self.error
        if event.event_id == self.bad:
            raise KeyError("its own")
        if self.refusal is not None and "number" not in event.data:
            raise self.refusal
        self.done[event.event_id] = self.trial.clock.now()

    async def publish(self, data: Any) -> str:
        self._published += 1
        await self.trial.publish("OrderPlaced", data, event_id=f"o-{self._published}")
        return f"o-{self._published}"

    async def publish_many(self, count: int) -> None:
        for number in range(count):
            await self.publish({"number": number})

    @property
    def letters(self) -> int:
        return len(self.trial.facts.of(DeadLettered))

    @property
    def paused(self) -> list[bool]:
        return [fact.paused for fact in self.trial.facts.of(FloodChanged)]

    async def until(self, holds: Callable[[], bool], at_most: timedelta = MINUTE) -> None:
        await until(self.trial, holds, at_most)


# Bad clients


MIXTURES = {
    "bad first": [False] * 30 + [True] * 100,
    "alternating": [False, True] * 30 + [True] * 70,
    "in lumps": ([True] * 20 + [False] * 10) * 3 + [True] * 40,
    "bad last": [True] * 100 + [False] * 30,
}


def refusing(error: type[Exception], *rules: Any, **options: Any) -> Shop:
    shop = Shop(**options)
    shop.refusal = error
    shop.service.classifier = DEFAULT_CLASSIFIER.before(rules)
    return shop


def by_rule() -> Shop:
    return refusing(LookupError, rules_for([LookupError], Verdict.PERMANENT, name="shop.declined"))


def by_a_table_in_other_words() -> Shop:
    table = next(rule for rule in DEFAULT_CLASSIFIER.rules if rule.name == "python.connection")
    return refusing(ConnectionError, replace(table, verdict=Verdict.PERMANENT))


@pytest.mark.parametrize(
    ("make", "mixture"),
    [
        (by_a_table_in_other_words, "bad first"),
        (lambda: refusing(PermanentError), "bad first"),
        (lambda: Shop(data=Order), "bad first"),
        (lambda: Shop(dedup="number"), "bad first"),
        *((by_rule, mixture) for mixture in MIXTURES),
    ],
)
async def test_no_good_event_waits_for_30_invalid_ones(
    make: Callable[[], Shop], mixture: str
) -> None:
    shop = make()
    for number, is_good in enumerate(MIXTURES[mixture]):
        await shop.publish({"number": number} if is_good else {})
    for body in (b"!", b'{"event_type": "Other"}') * 15:
        await shop.trial.publisher.publish_bytes(body, "OrderPlaced")
    start = shop.trial.clock.now()
    async with shop.trial.running():
        await shop.until(lambda: len(shop.done) == 100 and shop.letters == 60)
    assert set(shop.done.values()) == {start}, "a good event waited"
    assert shop.paused == []


# A bad deploy


@asynccontextmanager
async def paused(count: int, **options: Any) -> AsyncIterator[tuple[Shop, Worker]]:
    """Have a worker whose event type pauses, because every one of these events fails."""
    shop = Shop(**options)
    shop.service.transient = replace(shop.service.transient, ttl=2 * MINUTE)
    shop.error = KeyError("a bad deploy")
    await shop.publish_many(count)
    async with shop.trial.running() as worker:
        await shop.until(lambda: shop.paused == [True])
        yield shop, worker


async def test_a_function_of_the_service_that_names_the_work_may_be_a_bad_deploy() -> None:
    async with paused(30, dedup=lambda event: str(event.data["no such field"])) as (shop, _):
        assert shop.tried == []


async def test_when_the_cause_is_gone_good_events_pass_a_bad_one_at_the_head() -> None:
    async with paused(20) as (shop, _):
        shop.bad = await shop.publish({})
        shop.error = None
        await shop.publish_many(20)
        await shop.until(lambda: len(shop.done) == 20, at_most=5 * SECOND)
    assert shop.letters == 21


async def test_probes_are_few_and_take_different_events() -> None:
    async with paused(100) as (shop, _):
        first = FloodRule().at_least
        await shop.trial.clock.wait(MINUTE)
        assert len(shop.tried) - first == 10, "five at once, then after 1, 3, 7, 15 and 31 seconds"
        await shop.trial.clock.wait(10 * MINUTE)
        assert len(shop.tried) - first == 20, "and then one a minute"
    assert len(set(shop.tried)) == len(shop.tried) == shop.letters
    (queue,) = (await shop.trial.balance()).queues
    assert queue.ready == 100 - shop.letters
    places = [int(name.rpartition("-")[2]) for name in shop.tried[first:]]
    assert places != sorted(places), "they are not those at the head"


async def test_an_answer_of_the_handler_ends_a_pause_and_the_type_can_pause_again() -> None:
    async with paused(60) as (shop, _):
        shop.error = PermanentError("that card")
        await shop.until(lambda: shop.letters == 60, at_most=5 * SECOND)
        assert shop.paused == [True, False]
        await shop.trial.clock.wait(2 * MINUTE)
        shop.error = KeyError("bad again")
        await shop.publish_many(100)
        await shop.until(lambda: shop.paused == [True, False, True])


async def test_a_busy_service_that_turns_bad_does_not_pour_out_all_that_it_has_taken() -> None:
    shop = Shop()
    await shop.publish_many(1000)
    async with shop.trial.running():
        await shop.until(lambda: len(shop.done) == 1000)
        await shop.trial.clock.wait(2 * MINUTE)
        shop.error = ValueError("a bad producer")
        await shop.publish_many(500)
        await shop.until(lambda: shop.paused == [True])
        await shop.trial.clock.wait(30 * SECOND)
        assert shop.letters < 100


async def test_a_pause_costs_no_event_its_time_to_live() -> None:
    async with paused(100) as (shop, worker):
        await shop.trial.clock.wait(4 * MINUTE)
        before = shop.letters
        shop.error = RuntimeError("a fault of its own")
        worker.reload(RetryConfig())
        await shop.trial.clock.wait(2 * SECOND)
        assert len(shop.trial.facts.of(EventRetryScheduled)) == 100 - before
        shop.error = None
        await shop.until(lambda: len(shop.done) == 100 - before)
    assert shop.letters == before


@pytest.fixture(params=["sqlite", pytest.param("rabbitmq", marks=pytest.mark.server("rabbitmq"))])
def open_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Engine]:
    if request.param == "sqlite":
        file = tmp_path / "h.db"
        return lambda: sqlite_engine(file, SystemClock(), Seeded(), synchronous="off")
    request.getfixturevalue("coarse_delays")
    harness = RabbitEngineHarness(request.getfixturevalue("rabbitmq_vhost"))
    return lambda: without_store(harness.open_parts())


async def test_a_bad_deploy_pauses_its_event_type_and_no_other(
    open_engine: Callable[[], Engine],
) -> None:
    service = Service("shop", flood=FloodRule(probe_every=timedelta(milliseconds=200)))
    done: list[str] = []
    is_bad, facts, clock, chance = True, Recorder(), SystemClock(), Seeded()

    @service.on("OrderPlaced")
    async def place(event: Event, work: Work) -> None:
        if is_bad:
            raise KeyError("a bad deploy")
        done.append(event.event_id)

    service.on("OrderPaid")(lambda event, work: done.append(event.event_id))
    engine = open_engine()
    await engine.open(list(service.queues()))
    publisher = Publisher(engine.bus, clock, chance)
    for _ in range(100):
        for event_type in ("OrderPlaced", "OrderPaid"):
            await publisher.publish(event_type, {})
    worker = Worker([service], open_engine(), observer=facts, clock=clock, chance=chance)
    task = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        while len(done) < 100:  # noqa: ASYNC110 (the engine is real)
            await asyncio.sleep(0.02)
        last = facts.of(FloodChanged)[-1]
        assert (last.event_type, last.paused) == ("OrderPlaced", True)
        assert len(facts.of(DeadLettered)) < 60
        is_bad = False
        worker.reload(RetryConfig())
        while len(done) + len(facts.of(DeadLettered)) < 200:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    worker.stop()
    await task
    await engine.close()
    assert {fact.event_type for fact in facts.of(FloodChanged)} == {"OrderPlaced"}
    assert not facts.of(FloodChanged)[-1].paused
