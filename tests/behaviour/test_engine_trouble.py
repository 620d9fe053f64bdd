"""Engines that are away for a while, and observers that raise."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headway import Event, Lifecycle, Service, Work
from headway.facts import Fact
from headway.settings import WorkerSettings
from headway.testing.engines import Worker, memory_engine
from headway.testing.trial import Trial
from tests.behaviour.scenes import MINUTE, assert_all_is_accounted_for, until


class Unreliable:
    """A port of which one method raises a number of times, before or after it did its work."""

    def __init__(self, port: Any, method: str, times: int, *, afterwards: bool = False) -> None:
        self._port = port
        self._method = method
        self.left = times
        self._afterwards = afterwards

    def __getattr__(self, name: str) -> Any:
        if not callable(getattr(self._port, name)):
            return getattr(self._port, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            fails = name == self._method and self.left > 0
            if fails:
                self.left -= 1
            if fails and not self._afterwards:
                raise ConnectionError("the engine is away")
            answer = await getattr(self._port, name)(*args, **kwargs)
            if fails:
                raise ConnectionError("the answer was lost")
            return answer

        return call


def counting() -> Trial:
    orders = Service("orders")

    @orders.on("OrderPlaced", documents=("orders", "order"))
    async def handle(event: Event, work: Work) -> None:
        work.documents("counts").increment("all", "n")
        if event.data["order"] == "bad":
            raise ValueError

    return Trial(orders)


@asynccontextmanager
async def worker_on(
    trial: Trial, settings: WorkerSettings | None = None, /, **ports: Any
) -> AsyncIterator[Worker]:
    """Run a worker on an engine of which some ports are replaced."""
    engine = memory_engine(trial.clock, trial.chance, trial.state)
    given = {name: make(getattr(engine, name)) for name, make in ports.items()}
    worker = Worker(
        trial.services,
        replace(engine, **given),
        clock=trial.clock,
        chance=trial.chance,
        observer=trial.facts,
        settings=settings,
    )
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await task


@pytest.mark.parametrize(
    ("port", "method"),
    [
        ("finisher", "finish"),
        ("bus", "take"),
        ("records", "find"),
        ("documents", "begin"),
    ],
)
@pytest.mark.parametrize("times", [1, 7])
async def test_while_an_engine_is_away_nothing_is_lost_and_nothing_is_done_twice(
    port: str, method: str, times: int
) -> None:
    trial = counting()
    for n in range(20):
        await trial.publish("OrderPlaced", {"order": f"o{n}"})
    await trial.publish("OrderPlaced", {"order": "bad"})
    tried: list[Unreliable] = []

    def unreliable(whole: Any) -> Any:
        tried.append(Unreliable(whole, method, times))
        return tried[0]

    async with worker_on(trial, **{port: unreliable}):
        await until(trial, lambda: not trial.state.items, at_most=5 * MINUTE)
    assert tried[0].left == 0
    assert await trial.documents("counts") == [{"_id": "all", "n": 20}]
    assert len(await trial.letters("orders.failed")) == 1
    await assert_all_is_accounted_for(trial)


async def test_a_commit_whose_answer_was_lost_takes_effect_once() -> None:
    trial = counting()
    for n in range(20):
        await trial.publish("OrderPlaced", {"order": f"o{n}"})
    lost: Callable[[Any], Any] = lambda whole: Unreliable(whole, "finish", 3, afterwards=True)  # noqa: E731
    async with worker_on(trial, finisher=lost):
        await until(trial, lambda: not trial.state.items, at_most=5 * MINUTE)
        await trial.publish("OrderPlaced", {"order": "later"})
        await until(trial, lambda: not trial.state.items, at_most=5 * MINUTE)
    assert await trial.documents("counts") == [{"_id": "all", "n": 21}]
    await assert_all_is_accounted_for(trial)


async def test_what_was_taken_when_the_answer_was_lost_comes_back_at_the_stop() -> None:
    trial = counting()
    await trial.publish("OrderPlaced", {"order": "a"})
    lost: Callable[[Any], Any] = lambda whole: Unreliable(whole, "take", 1, afterwards=True)  # noqa: E731
    async with worker_on(trial, bus=lost):
        await trial.clock.wait(MINUTE)
    await trial.run()
    assert await trial.documents("counts") == [{"_id": "all", "n": 1}]


class Late:
    """Documents that are begun, of which the answer takes its time."""

    def __init__(self, documents: Any, trial: Trial) -> None:
        self._documents = documents
        self._trial = trial

    def __getattr__(self, name: str) -> Any:
        return getattr(self._documents, name)

    async def begin(self, beginnings: Any) -> Any:
        answers = await self._documents.begin(beginnings)
        await self._trial.clock.wait(timedelta(seconds=2))
        return answers


async def test_what_was_being_admitted_at_the_stop_is_free_at_once() -> None:
    orders = Service("orders", lifecycles=[Lifecycle("orders", lease=60 * MINUTE)])

    @orders.on("OrderPlaced", documents=("orders", "order"))
    async def handle(event: Event, work: Work) -> None: ...

    trial = Trial(orders)
    await trial.put("orders", {"_id": "a"})
    await trial.publish("OrderPlaced", {"order": "a"})
    async with worker_on(trial, documents=lambda whole: Late(whole, trial)):
        await trial.clock.wait(timedelta(seconds=1))
    stopped = trial.clock.now()
    await trial.run()
    assert trial.clock.now() - stopped < MINUTE
    (document,) = await trial.documents("orders")
    assert (document["status"], document["attemptCount"]) == ("processed", 1)


async def test_a_worker_can_be_stopped_while_its_engine_is_away() -> None:
    trial = counting()
    await trial.publish("OrderPlaced", {"order": "a"})
    start = trial.clock.now()
    away: Callable[[Any], Any] = lambda whole: Unreliable(whole, "finish", 10_000)  # noqa: E731
    async with worker_on(trial, finisher=away):
        await trial.clock.wait(timedelta(seconds=5))
    assert trial.clock.now() - start < MINUTE
    await trial.run()
    assert await trial.documents("counts") == [{"_id": "all", "n": 1}]


async def test_a_read_that_fails_is_repeated_and_is_no_failure_of_its_handler() -> None:
    orders = Service("orders")
    attempts: list[int] = []

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        attempts.append(work.attempt)
        await work.documents("orders").get("a")

    trial = Trial(orders)
    await trial.publish("OrderPlaced")
    away: Callable[[Any], Any] = lambda whole: Unreliable(whole, "fetch", 1)  # noqa: E731
    async with worker_on(trial, documents=away):
        await until(trial, lambda: not trial.state.items, at_most=MINUTE)
    assert attempts == [1]


class Raising:
    def __init__(self) -> None:
        self.told = 0

    def tell(self, fact: Fact) -> None:
        self.told += 1
        raise RuntimeError("no ink")


async def test_an_observer_that_raises_disturbs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    trial, observer = counting(), Raising()
    trial.facts = observer  # type: ignore[assignment]
    for order in ("a", "bad", "b"):
        await trial.publish("OrderPlaced", {"order": order})
    with caplog.at_level(logging.CRITICAL, logger="headway"):
        await trial.run(at_most=5 * MINUTE)
    assert observer.told >= 2
    assert await trial.documents("counts") == [{"_id": "all", "n": 2}]
    assert len(await trial.letters("orders.failed")) == 1
