"""Events that find their document leased: they start when it is released, or its worker is gone."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from headway import Lifecycle, Service
from headway.adapters.memory.store import MemoryDocuments
from headway.facts import DuplicatesRecognised, EventsWaiting, LeaseLost, Processed
from headway.runtime.finishing import StoreThenBus
from headway.settings import WorkerSettings
from headway.testing.engines import MemoryStore, Worker, memory_engine
from headway.testing.ports import Beginning, Begun, Engine, Finish, Finisher, Unit
from headway.testing.trial import Trial, at_rest
from tests.behaviour.scenes import MINUTE, SECOND, crash, until

LEASE = 10 * MINUTE
MOST = 1000
"""Events in the hands of one worker that wait for one document."""
SOON = timedelta(milliseconds=100)


class Counting(MemoryDocuments):
    """Documents that count how often operations begin with them."""

    begins = 0

    async def begin(self, beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        self.begins += len(beginnings)
        return await super().begin(beginnings)


class Commits:
    """A finisher that counts: for each commit, the units in it."""

    def __init__(self, finisher: Finisher, counted: list[int]) -> None:
        self._finisher = finisher
        self._counted = counted
        self.at_once = finisher.at_once

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        self._counted.append(len(units))
        return await self._finisher.finish(units)


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
        self.documents = Counting(self.trial.state)
        self.commits: list[int] = []

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

    @asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator[Worker]:
        """Have a worker running inside the block, as another process."""
        trial = self.trial
        worker = Worker(
            trial.services,
            self._engine(),
            clock=trial.clock,
            chance=trial.chance,
            observer=trial.facts,
            settings=WorkerSettings(**settings),
            name="host:1",
        )
        running = asyncio.create_task(worker.run())
        yield worker
        worker.stop()
        await running

    def _engine(self) -> Engine:
        trial = self.trial
        engine = memory_engine(trial.clock, trial.chance, trial.state)
        commits = Commits(engine.finisher, self.commits)
        return replace(engine, documents=self.documents, finisher=commits)

    async def until_started(self, *names: str) -> None:
        await until(self.trial, lambda: set(names) <= set(self.started), at_most=MINUTE)

    async def until_at_rest(self, at_most: timedelta = MINUTE) -> None:
        await until(self.trial, lambda: not self.trial.state.items, at_most=at_most)

    async def wait(self, delay: timedelta) -> None:
        await self.trial.clock.wait(delay)


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_event_starts_when_the_lease_of_its_document_is_released(workers: int) -> None:
    scene = Scene()
    await scene.put("a")
    release = scene.held("first")
    await scene.publish("a", "first")
    full = {"concurrency": 1, "prefetch": 1}  # it takes no second event
    async with AsyncExitStack() as processes:
        await processes.enter_async_context(scene.running(**full if workers > 1 else {}))
        await scene.until_started("first")
        if workers > 1:
            await processes.enter_async_context(scene.running())
        await scene.publish("a", "second")
        await scene.wait(90 * SECOND)
        assert scene.started == ["first"], "it is renewed for as long as its worker lives"
        released = scene.trial.clock.now()
        release.set()
        await scene.until_at_rest()
    assert scene.started == ["first", "second"]
    assert scene.times["second"] - released <= SOON


async def test_events_wait_in_the_order_in_which_they_came() -> None:
    scene = Scene()
    await scene.put("a")
    release = scene.held("holder")
    await scene.publish("a", "holder")
    names = [f"event-{number:02}" for number in range(30)]
    async with scene.running():
        await scene.until_started("holder")
        for name in names[:20]:
            await scene.publish("a", name)
        await scene.wait(5 * SECOND)
        release.set()
        await scene.publish("a", *names[20:])
        await scene.until_at_rest()
    assert scene.started == ["holder", *names]
    pauses = [scene.times[b] - scene.ended[a] for a, b in pairwise(names)]
    assert max(pauses) <= SOON


async def test_a_thousand_events_that_wait_for_one_document_delay_no_event_of_another() -> None:
    scene = Scene(processed=True)
    await scene.put("a", *(f"other-{number}" for number in range(20)))
    release = scene.held("holder")
    await scene.publish("a", "holder")
    async with scene.running(concurrency=2):
        await scene.until_started("holder")
        await scene.publish("a", *(f"waiting-{number}" for number in range(1000)))
        await scene.wait(5 * SECOND)
        begins = scene.documents.begins
        for number in range(20):
            published = scene.trial.clock.now()
            await scene.publish(f"other-{number}", f"free-{number}")
            await scene.until_started(f"free-{number}")
            assert scene.times[f"free-{number}"] - published <= SOON
        await scene.wait(5 * MINUTE)
        assert begins < 100, "those that came later wait behind the first, without asking"
        assert scene.documents.begins == begins + 20, "waiting writes nothing"
        released = scene.trial.clock.now()
        release.set()
        await scene.until_at_rest()
        assert scene.trial.clock.now() - released <= SECOND
    assert Counter(scene.started).most_common(1)[0][1] == 1
    superseded = [f for f in scene.trial.facts.of(DuplicatesRecognised) if f.why == "superseded"]
    assert sum(fact.count for fact in superseded) == 1000


async def test_more_events_than_a_worker_keeps_go_back_to_the_bus_at_a_bounded_pace() -> None:
    scene = Scene(processed=True)
    await scene.put("a")
    release = scene.held("holder")
    await scene.publish("a", "holder")
    async with scene.running():
        await scene.until_started("holder")
        more = 500
        await scene.publish("a", *(f"w-{number}" for number in range(MOST + more)))
        await scene.wait(10 * SECOND)
        depths = (await scene.trial.engine.places.depths()).queues[0]
        assert depths.leased >= MOST
        assert depths.leased + depths.delayed + depths.ready == MOST + more + 1
        scene.commits.clear()
        await scene.wait(20 * SECOND)
        assert more * 5 <= sum(scene.commits) <= 250 * 20, "each of them comes again, at this pace"
        assert len(scene.commits) <= 5 * 20, "those that go back come again together"
        released = scene.trial.clock.now()
        release.set()
        await scene.until_at_rest()
        assert scene.trial.clock.now() - released <= 3 * SECOND
    assert len(scene.started) == 1


async def test_a_worker_that_stops_hands_back_what_waits_and_counts_nothing() -> None:
    scene = Scene()
    await scene.put("a")
    release = scene.held("holder")
    await scene.publish("a", "holder")
    async with scene.running():
        await scene.until_started("holder")
        async with scene.running() as second:
            await scene.publish("a", *(f"waiting-{number}" for number in range(10)))
            await scene.wait(SECOND)
            stopped = scene.trial.clock.now()
            second.stop()
            await scene.wait(SOON)
            kept = [
                each
                for each in scene.trial.state.items.values()
                if each.taker is second._engine.bus
            ]
            assert not kept, f"{scene.trial.clock.now() - stopped} after the order to stop"
        assert {each.returns for each in scene.trial.state.items.values()} == {0}
        release.set()
        await scene.until_at_rest()
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
        async with scene.running() as second:
            await scene.wait(SECOND)
            killed = scene.trial.clock.now()
            crash(scene.trial, first)
            await scene.until_started("second")
            assert scene.times["second"] - killed <= 6 * SECOND
            # It only believes to be alive, and cannot commit what it did.
            release.set()
            await scene.until_at_rest()
            second.stop()
    names = [each["name"] for each in await scene.trial.documents("log")]
    assert sorted(names) == ["first", "second"], "each took effect once"
    gone = [fact for fact in scene.trial.facts.of(EventsWaiting) if fact.is_gone]
    assert [(fact.document, fact.holder) for fact in gone][:1] == [("a", "host:1")]


async def test_document_holder_and_end_are_told_once_in_a_minute() -> None:
    scene = Scene()
    await scene.put("a")
    release = scene.held("holder")
    await scene.publish("a", "holder")
    async with scene.running():
        await scene.until_started("holder")
        await scene.publish("a", *(f"waiting-{number}" for number in range(100)))
        await scene.wait(2.5 * MINUTE)
        release.set()
        await scene.until_at_rest()
    told = scene.trial.facts.of(EventsWaiting)
    assert [fact.count for fact in told][1:3] == [100, 100]
    assert 3 <= len(told) <= 4
    assert {(each.collection, each.document, each.holder) for each in told} == {
        ("docs", "a", "host:1")
    }
    assert all(each.until is not None and each.until > scene.times["holder"] for each in told)


async def test_superseded_events_are_counted_and_told() -> None:
    scene = Scene(processed=True)
    await scene.put("a")
    await scene.publish("a", "first")
    async with scene.running():
        await scene.until_at_rest()
        await scene.publish("a", "second")
        await scene.until_at_rest()
    (fact,) = scene.trial.facts.of(DuplicatesRecognised)
    assert (fact.why, fact.count, fact.idempotency_key) == ("superseded", 1, "s-second")


class Lossy(Scene):
    """Workers lose their connection, and live on. The store is another system than the bus."""

    def _engine(self) -> Engine:
        engine, store = super()._engine(), MemoryStore(self.trial.state)
        finisher = StoreThenBus(store, store.records, engine.bus, engine.letters)
        return replace(engine, finisher=finisher)

    def lose_connection(self, worker: Worker) -> None:
        state, bus = self.trial.state, worker._engine.bus
        state.leave(bus, returned=True)
        state.gone.discard(bus)
        state.workers[bus] = None
        state.changed()


@pytest.mark.parametrize("documents", ["leased", "none"])
async def test_events_that_come_back_to_a_worker_that_still_runs_them_are_not_started_again(
    documents: str,
) -> None:
    scene = Lossy(processed=True)
    names = [f"event-{number}" for number in range(50)]
    gates = [scene.held(name) for name in names]
    if documents == "leased":
        await scene.put(*names)
    for name in names:
        await scene.publish(name, name)
    async with scene.running(concurrency=50) as worker:
        await scene.until_started(*names)
        scene.lose_connection(worker)
        await scene.wait(5 * SECOND)
        for gate in gates:
            gate.set()
        await scene.until_at_rest()
    assert Counter(scene.started) == dict.fromkeys(names, 1)
    assert sum(len(fact.seconds) for fact in scene.trial.facts.of(Processed)) == 50
    assert scene.trial.facts.of(LeaseLost) == []
    assert at_rest(await scene.trial.engine.places.depths())


async def test_events_that_come_back_to_another_worker_wait_for_the_one_that_runs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Lossy(processed=True)
    names = [f"event-{number}" for number in range(20)]
    gates = [scene.held(name) for name in names]
    await scene.put(*names)
    for name in names:
        await scene.publish(name, name)
    async with scene.running(concurrency=20) as first:
        await scene.until_started(*names)
        async with scene.running(concurrency=20) as second:
            await scene.wait(SECOND)
            monkeypatch.setattr(first._engine.bus, "take", _nothing)
            scene.lose_connection(first)
            await scene.wait(10 * SECOND)
            for gate in gates:
                gate.set()
            await scene.until_at_rest()
            second.stop()
    assert Counter(scene.started) == dict.fromkeys(names, 1)


async def _nothing(*_: Any) -> Sequence[Any]:
    await asyncio.Event().wait()
    return ()
