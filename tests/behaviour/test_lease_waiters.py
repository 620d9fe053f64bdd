"""Events that find their document leased: they start when it is released, or its worker is gone."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from headway import Lifecycle, Service
from headway.facts import DuplicatesRecognised, EventsWaiting, LeaseLost, Processed, SuspectBegun
from headway.runtime.finishing import StoreThenBus
from headway.testing.engines import MemoryStore, Worker, memory_engine
from headway.testing.ports import Beginning, Begun, Engine, Finish, Unit
from headway.testing.trial import Trial, at_rest
from tests.behaviour.scenes import (
    MINUTE,
    SECOND,
    assert_all_is_accounted_for,
    bus_of,
    crash,
    reasons,
    until,
)
from tests.behaviour.sweeps import Spied, working

LEASE = 10 * MINUTE
MOST = 1000
"""Events in the hands of one worker that wait for one document."""
SOON = timedelta(milliseconds=100)


class Scene:
    """A service whose handlers work on leased documents for as long as the test says.

    Each event names its document, and itself. A document is pending again after each event, unless
    `processed`: so all events have work to do.
    """

    def __init__(self, *, processed: bool = False) -> None:
        self.started: list[str] = []
        self.times: dict[str, datetime] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.ended: dict[str, datetime] = {}
        self._processed = processed
        service = Service("s", lifecycles=[Lifecycle("docs", lease=LEASE, max_attempts=10_000)])
        service.on("Made", documents=("docs", "doc"))(self._handle)
        self.trial = Trial(service)
        self.begins = 0
        self.is_killed = False
        """Workers release nothing any more."""
        self.commits: list[int] = []
        """For each commit, the units in it."""

    async def _handle(self, event: Any, work: Any) -> None:
        name = event.data["name"]
        self.started.append(name)
        self.times[name] = self.trial.clock.now()
        work.documents("log").add({"name": name})
        if name in self.gates:
            await self.gates[name].wait()
        if not self._processed:
            for one in work.document_ids:
                work.put_off(one)
        self.ended[name] = self.trial.clock.now()

    def held(self, name: str) -> asyncio.Event:
        """Have an event keep its document until the test sets what this gives."""
        self.gates[name] = asyncio.Event()
        return self.gates[name]

    async def put(self, *documents: str) -> None:
        await self.trial.put("docs", *({"_id": each, "status": "pending"} for each in documents))

    async def publish(self, document: str, *names: str) -> None:
        for name in names:
            await self.trial.publish("Made", {"doc": document, "name": name}, event_id=name)

    def running(self, **settings: Any) -> AbstractAsyncContextManager[Worker]:
        """Have a worker running inside the block, as another process."""
        trial = self.trial
        return working(trial, *trial.services, engine=self._engine(), name="host:1", **settings)

    def _engine(self) -> Engine:
        trial = self.trial
        inner = memory_engine(trial.clock, trial.chance, trial.state)

        async def begin(beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
            self.begins += len(beginnings)
            return await inner.documents.begin(beginnings)

        async def leave(*given: Any) -> int:
            if self.is_killed:
                raise ConnectionError("this process is dead")
            return await inner.documents.leave(*given)

        async def finish(units: Sequence[Unit]) -> Sequence[Finish]:
            self.commits.append(len(units))
            return await inner.finisher.finish(units)

        documents: Any = Spied(inner.documents, begin=begin, leave=leave)
        finisher: Any = Spied(inner.finisher, finish=finish)
        return replace(inner, documents=documents, finisher=finisher)

    @asynccontextmanager
    async def holding(self, **settings: Any) -> AsyncIterator[asyncio.Event]:
        """Have a worker hold document a inside the block, until the test sets what this gives."""
        await self.put("a")
        release = self.held("holder")
        await self.publish("a", "holder")
        async with self.running(**settings):
            await self.until_started("holder")
            yield release
            release.set()
            self.released = self.trial.clock.now()
            await self.until_at_rest()

    async def until_started(self, *names: str) -> None:
        await until(self.trial, lambda: set(names) <= set(self.started), at_most=MINUTE)

    async def until_at_rest(self, at_most: timedelta = MINUTE) -> None:
        await until(self.trial, lambda: not self.trial.state.items, at_most=at_most)

    async def wait(self, delay: timedelta) -> None:
        await self.trial.clock.wait(delay)


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_event_starts_when_the_lease_of_its_document_is_released(workers: int) -> None:
    scene = Scene()
    full = {"concurrency": 1, "prefetch": 1}  # it takes no second event
    async with AsyncExitStack() as processes:
        if workers > 1:
            await processes.enter_async_context(scene.running())
        async with scene.holding(**full if workers > 1 else {}):
            await scene.publish("a", "second")
            await scene.wait(90 * SECOND)
            assert scene.started == ["holder"], "it is renewed for as long as its worker lives"
    assert scene.started == ["holder", "second"]
    assert scene.times["second"] - scene.released <= SOON


async def test_events_wait_in_the_order_in_which_they_came() -> None:
    scene = Scene()
    names = [f"event-{number:02}" for number in range(30)]
    async with scene.holding() as release:
        await scene.publish("a", *names[:20])
        await scene.wait(5 * SECOND)
        release.set()
        await scene.publish("a", *names[20:])
    assert scene.started == ["holder", *names]
    pauses = [scene.times[b] - scene.ended[a] for a, b in pairwise(names)]
    assert max(pauses) <= SOON


async def test_a_thousand_events_that_wait_for_one_document_delay_no_event_of_another() -> None:
    scene = Scene(processed=True)
    await scene.put(*(f"other-{number}" for number in range(20)))
    async with scene.holding(concurrency=2):
        await scene.publish("a", *(f"waiting-{number}" for number in range(1000)))
        await scene.wait(5 * SECOND)
        begins = scene.begins
        for number in range(20):
            published = scene.trial.clock.now()
            await scene.publish(f"other-{number}", f"free-{number}")
            await scene.until_started(f"free-{number}")
            assert scene.times[f"free-{number}"] - published <= SOON
        await scene.wait(5 * MINUTE)
        assert begins < 100, "those that came later wait behind the first, without asking"
        assert scene.begins == begins + 20, "waiting writes nothing"
    assert scene.trial.clock.now() - scene.released <= SECOND
    assert set(Counter(scene.started).values()) == {1}
    superseded = [f for f in scene.trial.facts.of(DuplicatesRecognised) if f.why == "superseded"]
    assert sum(fact.count for fact in superseded) == 1000


async def test_more_events_than_a_worker_keeps_go_back_to_the_bus_at_a_bounded_pace() -> None:
    scene, more = Scene(processed=True), 500
    async with scene.holding():
        await scene.publish("a", *(f"w-{number}" for number in range(MOST + more)))
        await scene.wait(10 * SECOND)
        depths = (await scene.trial.engine.places.depths()).queues[0]
        assert depths.leased >= MOST
        assert depths.leased + depths.delayed + depths.ready == MOST + more + 1
        scene.commits.clear()
        await scene.wait(20 * SECOND)
        assert more * 5 <= sum(scene.commits) <= 250 * 20, "each of them comes again, at this pace"
        assert len(scene.commits) <= 5 * 20, "those that go back come again together"
    assert scene.trial.clock.now() - scene.released <= 3 * SECOND
    assert len(scene.started) == 1


async def test_a_worker_that_stops_hands_back_what_waits_and_counts_nothing() -> None:
    scene = Scene()
    async with scene.holding():
        async with scene.running() as second:
            await scene.publish("a", *(f"waiting-{number}" for number in range(10)))
            await scene.wait(SECOND)
            second.stop()
            await scene.wait(SOON)
            takers = {each.taker for each in scene.trial.state.items.values()}
            assert bus_of(second) not in takers, "so long after the order to stop"
        assert {each.returns for each in scene.trial.state.items.values()} == {0}
    assert len(scene.started) == 11
    assert scene.trial.facts.of(LeaseLost) == []


async def test_when_the_holder_is_gone_another_event_takes_the_document_over() -> None:
    scene = Scene()
    await scene.put("a")
    release = scene.held("first")
    await scene.publish("a", "first")
    async with scene.running(concurrency=1, prefetch=1) as first:
        await scene.until_started("first")  # it takes no more
        await scene.publish("a", "second")
        async with scene.running():
            await scene.wait(SECOND)
            killed = scene.trial.clock.now()
            crash(scene.trial, first)
            await scene.until_started("second")
            assert scene.times["second"] - killed <= 6 * SECOND
            # It only believes to be alive, and cannot commit what it did.
            release.set()
            await scene.until_at_rest()
    names = [each["name"] for each in await scene.trial.documents("log")]
    assert sorted(names) == ["first", "second"], "each took effect once"
    gone = [fact for fact in scene.trial.facts.of(EventsWaiting) if fact.is_gone]
    assert (gone[0].document, gone[0].holder) == ("a", "host:1")


async def test_document_holder_and_end_are_told_once_in_a_minute() -> None:
    scene = Scene()
    async with scene.holding():
        await scene.publish("a", *(f"waiting-{number}" for number in range(100)))
        await scene.wait(2.5 * MINUTE)
    told = scene.trial.facts.of(EventsWaiting)
    assert [fact.count for fact in told][1:3] == [100, 100]
    assert 3 <= len(told) <= 4
    assert {(each.collection, each.document, each.holder) for each in told} == {
        ("docs", "a", "host:1")
    }
    assert all(each.until is not None and each.until > scene.times["holder"] for each in told)


# Workers that die with a document in hand


async def deaths(scene: Scene, count: int) -> None:
    """Let workers die over one event, one after another."""
    await scene.put("a")
    await scene.publish("a", "deadly")
    for number in range(count):
        scene.is_killed = False
        async with scene.running() as worker:
            await until(scene.trial, lambda n=number: len(scene.started) > n, at_most=MINUTE)  # type: ignore[misc]
            scene.is_killed = True
            crash(scene.trial, worker)
    scene.is_killed = False


async def test_a_lease_does_not_keep_a_crash_loop_from_its_end() -> None:
    scene = Scene(processed=True)
    scene.held("deadly")
    await deaths(scene, 4)
    async with scene.running():
        await scene.until_at_rest()
    assert scene.started == ["deadly"] * 4
    assert await reasons(scene.trial, "s.failed") == ["crash_loop"]
    assert [fact.returns for fact in scene.trial.facts.of(SuspectBegun)] == [2, 3]
    (document,) = await scene.trial.documents("docs")
    assert (document["status"], document["attemptCount"]) == ("failed", 1)
    await assert_all_is_accounted_for(scene.trial)


async def test_the_event_of_a_dead_worker_takes_over_the_lease_of_its_document() -> None:
    scene = Scene(processed=True)
    release = scene.held("deadly")
    await deaths(scene, 1)
    release.set()
    back = scene.trial.clock.now()
    async with scene.running():
        await scene.until_at_rest()
    assert scene.started == ["deadly"] * 2
    assert scene.times["deadly"] - back < SECOND
    assert len(await scene.trial.documents("log")) == 1
    (document,) = await scene.trial.documents("docs")
    assert (document["status"], document["attemptCount"]) == ("processed", 1)


# Connections that are lost under a worker that lives on


class Lossy(Scene):
    """Workers lose their connection, and live on. The store is another system than the bus."""

    def _engine(self) -> Engine:
        engine, store = super()._engine(), MemoryStore(self.trial.state)
        finisher = StoreThenBus(store, store.records, engine.bus, engine.letters)
        return replace(engine, finisher=finisher)

    async def publish_held(self, count: int, *, stored: bool = True) -> list[str]:
        """Have events about a document each, all of which wait for the end of the test."""
        names = [f"event-{number}" for number in range(count)]
        if stored:
            await self.put(*names)
        for name in names:
            self.held(name)
            await self.publish(name, name)
        return names

    def lose_connection(self, worker: Worker) -> None:
        state, bus = self.trial.state, bus_of(worker)
        state.leave(bus, returned=True)
        state.gone.discard(bus)
        state.workers[bus] = None
        state.changed()

    async def end(self) -> None:
        for gate in self.gates.values():
            gate.set()
        await self.until_at_rest()


@pytest.mark.parametrize("documents", ["leased", "none"])
async def test_events_that_come_back_to_a_worker_that_still_runs_them_are_not_started_again(
    documents: str,
) -> None:
    scene = Lossy(processed=True)
    names = await scene.publish_held(50, stored=documents == "leased")
    async with scene.running(concurrency=50) as worker:
        await scene.until_started(*names)
        scene.lose_connection(worker)
        await scene.wait(5 * SECOND)
        await scene.end()
    assert Counter(scene.started) == dict.fromkeys(names, 1)
    assert sum(len(fact.seconds) for fact in scene.trial.facts.of(Processed)) == 50
    assert scene.trial.facts.of(LeaseLost) == []
    assert at_rest(await scene.trial.engine.places.depths())


async def test_events_that_come_back_to_another_worker_wait_for_the_one_that_runs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(*_: Any) -> Sequence[Any]:
        await asyncio.Event().wait()
        return ()

    scene = Lossy(processed=True)
    names = await scene.publish_held(20)
    async with scene.running(concurrency=20) as first:
        await scene.until_started(*names)
        async with scene.running(concurrency=20):
            await scene.wait(SECOND)
            monkeypatch.setattr(bus_of(first), "take", nothing)
            scene.lose_connection(first)
            await scene.wait(10 * SECOND)
            await scene.end()
    assert Counter(scene.started) == dict.fromkeys(names, 1)
