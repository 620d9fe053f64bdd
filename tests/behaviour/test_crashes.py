"""Workers that die, and workers that are told to stop."""

import asyncio
import re
from datetime import timedelta

import pytest

from headway import Event, Lifecycle, Service, Work
from headway.facts import DeadLettered, EventRetryScheduled, LeaseLost, Processed, SuspectBegun
from headway.settings import WorkerSettings
from headway.testing.trial import Trial
from tests.behaviour.scenes import (
    SECOND,
    assert_all_is_accounted_for,
    crash,
    only_letter,
    reasons,
    until,
)


class Scene:
    """A service over whose `bad` events workers die as often as the test says."""

    def __init__(self, deadly: int = 99, concurrency: int = 10) -> None:
        self.begun: list[str] = []
        self.beside: list[int] = []
        self._running = 0
        self._deadly = deadly
        orders = Service("orders")
        orders.on("OrderPlaced", failed="OrderFailed")(self._handle)
        self.trial = Trial(orders, settings=WorkerSettings(concurrency=concurrency))

    async def _handle(self, event: Event, work: Work) -> None:
        self.begun.append(event.event_id)
        self._running += 1
        try:
            if event.event_id.startswith("bad"):
                self.beside.append(self._running)
                if self.deaths <= self._deadly:
                    await asyncio.Event().wait()
            if event.event_id.startswith("slow"):
                await self.trial.clock.wait(SECOND)
            work.documents("log").add({"event": event.event_id})
        finally:
            self._running -= 1

    @property
    def deaths(self) -> int:
        return sum(event_id.startswith("bad") for event_id in self.begun)

    async def die(self) -> None:
        """Let one worker die over the bad event."""
        before = self.deaths
        async with self.trial.running() as worker:
            await until(self.trial, lambda: self.deaths > before, at_most=timedelta(minutes=5))
            crash(self.trial, worker)

    async def done(self) -> list[str]:
        return sorted(each["event"] for each in await self.trial.documents("log"))


# Death


async def test_an_event_whose_workers_died_twice_runs_alone_with_its_begin_on_record() -> None:
    scene = Scene(deadly=3)
    await scene.trial.publish("OrderPlaced", event_id="bad")
    for _ in range(3):
        await scene.die()
    (item,) = scene.trial.state.items.values()
    assert (item.returns, item.begins) == (3, 1)
    assert [fact.returns for fact in scene.trial.facts.of(SuspectBegun)] == [2]
    for n in range(20):
        await scene.trial.publish("OrderPlaced", event_id=f"e{n}")
    await scene.trial.run()
    assert scene.beside == [1, 1, 1, 1]
    assert len(await scene.done()) == 21


async def test_a_suspect_begins_when_those_that_run_already_have_ended() -> None:
    scene = Scene(deadly=2)
    await scene.trial.publish("OrderPlaced", event_id="bad")
    for _ in range(2):
        await scene.die()
    await scene.trial.publish("OrderPlaced", event_id="slow")
    await scene.trial.run()
    assert scene.begun == ["bad", "bad", "slow", "bad"]
    assert scene.beside == [1, 1, 1]


async def test_two_begins_without_an_end_are_a_crash_loop() -> None:
    scene = Scene(concurrency=2)
    await scene.trial.publish("OrderPlaced", event_id="bad")
    for n in range(30):
        await scene.trial.publish("OrderPlaced", event_id=f"e{n}")
    for _ in range(4):
        await scene.die()
    await scene.trial.run()
    assert scene.deaths == 4
    letter = await only_letter(scene.trial)
    assert (letter.abandoned_reason, letter.error_type) == ("crash_loop", "CrashLoopError")
    assert re.search(r"\b4 times\b.*\b2 .*test_crashes\.py:\d+ ", letter.last_error)
    assert [fact.reason for fact in scene.trial.facts.of(DeadLettered)] == ["crash_loop"]
    assert len(await scene.done()) == 30, "its neighbours"
    assert scene.trial.facts.of(EventRetryScheduled) == []
    await assert_all_is_accounted_for(scene.trial)


@pytest.mark.parametrize("fails", [False, True])
async def test_whoever_lost_its_lease_has_no_effect(*, fails: bool) -> None:
    go_on = asyncio.Event()
    runs: list[int] = []
    orders, shipping = Service("orders"), Service("shipping")

    @orders.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        runs.append(work.attempt)
        work.documents("counts").increment("all", "n")
        work.publish("OrderShipped")
        if len(runs) == 1:
            await go_on.wait()
            if fails:
                raise ValueError

    @shipping.on("OrderShipped")
    async def ship(event: Event, work: Work) -> None:
        work.documents("counts").increment("shipped", "n")

    trial = Trial(orders, shipping)
    await trial.publish("OrderPlaced")
    async with trial.running() as late:
        await until(trial, lambda: runs == [1])
        crash(trial, late)
        await trial.run()
        go_on.set()
        await until(trial, lambda: bool(trial.facts.of(LeaseLost)), at_most=SECOND)
    assert runs == [1, 1]
    assert await trial.documents("counts") == [{"_id": "all", "n": 1}, {"_id": "shipped", "n": 1}]
    assert sum(len(fact.seconds) for fact in trial.facts.of(Processed)) == 2
    assert await reasons(trial) == []


# Stopping


class Slow:
    """A service whose handlers take their time."""

    def __init__(self, seconds: float, *, grace: float = 30, concurrency: int = 2) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self._takes = timedelta(seconds=seconds)
        orders = Service("orders")
        orders.on("OrderPlaced")(self._handle)
        settings = WorkerSettings(concurrency=concurrency, grace=timedelta(seconds=grace))
        self.trial = Trial(orders, settings=settings)

    async def _handle(self, event: Event, work: Work) -> None:
        self.begun.append(event.event_id)
        work.documents("log").add({"event": event.event_id})
        try:
            await self.trial.clock.wait(self._takes)
        except asyncio.CancelledError:
            self.cancelled.append(event.event_id)
            raise
        self.ended.append(event.event_id)

    async def stop_after_the_first_two_began(self, events: int = 10) -> None:
        for n in range(events):
            await self.trial.publish("OrderPlaced", event_id=f"e{n}")
        async with self.trial.running() as worker:
            await until(self.trial, lambda: len(self.begun) == 2)
            worker.stop()  # and once more at the end: twice is once


async def test_a_worker_told_to_stop_finishes_what_runs_and_begins_nothing_new() -> None:
    slow = Slow(5)
    start = slow.trial.clock.now()
    await slow.stop_after_the_first_two_began()
    assert slow.trial.clock.now() - start < timedelta(seconds=7)
    assert slow.begun == slow.ended == ["e0", "e1"]
    (queue,) = (await slow.trial.balance()).queues
    assert (queue.ready, queue.leased, queue.delayed) == (8, 0, 0)
    for item in slow.trial.state.items.values():
        assert (item.returns, item.begins, item.travel.failures) == (0, 0, 0)
    await slow.trial.run()
    assert sorted(slow.ended) == [f"e{n}" for n in range(10)]


async def test_a_handler_that_outlasts_the_grace_is_cancelled_and_its_event_handed_back() -> None:
    slow = Slow(60, grace=10)
    start = slow.trial.clock.now()
    await slow.stop_after_the_first_two_began()
    assert slow.trial.clock.now() - start < timedelta(seconds=12)
    assert sorted(slow.cancelled) == ["e0", "e1"]
    assert await slow.trial.documents("log") == []
    (queue,) = (await slow.trial.balance()).queues
    assert (queue.ready, queue.leased) == (10, 0)
    assert {item.returns for item in slow.trial.state.items.values()} == {0}


async def test_a_suspect_that_is_handed_back_at_a_stop_has_its_begin_taken_back() -> None:
    scene = Scene()
    await scene.trial.publish("OrderPlaced", event_id="bad")
    await scene.die()
    await scene.die()
    for _ in range(3):
        before = scene.deaths
        async with scene.trial.running():
            await until(scene.trial, lambda before=before: scene.deaths > before)  # type: ignore[misc]
    (item,) = scene.trial.state.items.values()
    assert (item.returns, item.begins) == (2, 0)
    assert await reasons(scene.trial) == []


class Bakery:
    """A handler whose commits lose against others, until it is told that they do not."""

    def __init__(self) -> None:
        self.is_contested = True
        self.runs = 0
        self.service = Service(
            "bakery",
            lifecycles=[Lifecycle("loaves", max_attempts=2, lease=timedelta(minutes=10))],
        )

        @self.service.on("LoafOrdered", documents=("loaves", "loaf"))
        async def bake(event: Event, work: Work) -> None:
            self.runs += 1
            if self.is_contested:
                work.documents("ovens").update("o", {"hot": True}, expect={"hot": "never"})

        @self.service.on("Opened")
        async def opened(event: Event, work: Work) -> None:
            work.documents("ovens").insert_new({"_id": "o", "hot": False})
            work.documents("loaves").insert_new({"_id": "a", "status": "pending"})
            work.publish("LoafOrdered", {"loaf": "a"})


async def test_a_rerun_that_waits_when_the_worker_stops_is_handed_back_with_its_documents() -> None:
    bakery = Bakery()
    trial = Trial(bakery.service)
    await trial.publish("Opened")
    async with trial.running():
        await until(trial, lambda: bakery.runs == 3)
        await trial.clock.wait(timedelta(milliseconds=1))  # it waits for its next run
    (loaf,) = await trial.documents("loaves")
    assert (loaf["status"], loaf["attemptCount"]) == ("pending", 1)
    assert loaf["leaseToken"] == "waiting", "no worker holds it"
    bakery.is_contested = False
    began = trial.clock.now()
    await trial.run()
    assert trial.clock.now() - began < timedelta(seconds=5)
    (loaf,) = await trial.documents("loaves")
    assert (loaf["status"], loaf["attemptCount"]) == ("processed", 1)
    assert await trial.letters("bakery.failed") == []
    await assert_all_is_accounted_for(trial)
