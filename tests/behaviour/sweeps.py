"""What the tests of sweeps have in common: stuck documents on any engine, and sweepers for them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from headway import Event, Service
from headway.facts import SweepEnded
from headway.runtime.sweeper import Sweeper
from headway.settings import SweepSettings, WorkerSettings
from headway.testing.chance import Seeded
from headway.testing.clock import VirtualClock
from headway.testing.engines import (
    State,
    StoreParts,
    Worker,
    memory_engine,
    sqlite_engine,
    with_store,
)
from headway.testing.facts import Recorder
from headway.testing.ports import (
    Delivery,
    Document,
    Done,
    DoneRecord,
    Ended,
    Engine,
    InsertNew,
    Message,
    Outcome,
    Queue,
    Sweeping,
    Travel,
    Unit,
    decode,
    encode,
    instant,
)
from headway.testing.trial import Trial
from tests.engines.pairs.harnesses import bus_parts

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
OpenEngine = Callable[[VirtualClock, Seeded], Engine]

_PUT = Queue(name="yard.put", event_types=("Put",), failed="yard.failed")


def parsing() -> Service:
    """Give a service whose event needs more than the id of a document."""
    service = Service("parsing")

    @service.on(
        "ArchiveIngested",
        documents=("archives", "archive_id"),
        rebuild=lambda document: {"archive_id": document["_id"], "source": document["source"]},
    )
    async def parse(event: Any, work: Any) -> None: ...

    return service


def chunking() -> Service:
    service = Service("chunking")

    @service.on("JSONParsed", documents=("messages", "message_doc_ids"), dedup="message_doc_ids")
    async def chunk(event: Any, work: Any) -> None: ...

    return service


PARSING, CHUNKING = "parsing.archive.ingested", "chunking.json.parsed"


def lost(one: str = "m", **fields: Any) -> dict[str, Any]:
    """Give a document whose first event was lost."""
    return {"_id": one, "status": "pending", "attemptCount": 0, **fields}


class Yard:
    """One storage with documents in it; sweepers come and go."""

    def __init__(self, open_engine: OpenEngine) -> None:
        self.clock = VirtualClock()
        self.chance = Seeded()
        self.facts = Recorder()
        self._open_engine = open_engine
        self._engines: list[Engine] = []
        self._puts = 0
        self.engine = self.new_engine()

    def new_engine(self) -> Engine:
        """Give an engine, as another process has it."""
        engine = self._open_engine(self.clock, self.chance)
        self._engines.append(engine)
        return engine

    async def close(self) -> None:
        for engine in self._engines:
            await engine.close()

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def ago(self, delay: timedelta) -> str:
        return instant(self.now - delay)

    async def put(self, collection: str, *documents: Document) -> None:
        """Store documents as they are."""
        await self.engine.open([_PUT])
        self._puts += 1
        body = encode(Event("Put", f"put-{self._puts}"))
        travel = Travel(operation=f"put-{self._puts}")
        await self.engine.bus.publish([Message(body=body, travel=travel, event_type="Put")])
        (delivery,) = await self.engine.bus.take([_PUT.name], 1)
        record = DoneRecord(
            key=f"yard/Put/0/{travel.operation}",
            operation=travel.operation,
            queue=_PUT.name,
            ended=Ended.DONE,
            at=self.now,
        )
        writes = tuple(InsertNew(collection, document) for document in documents)
        unit = Unit(delivery=delivery, then=Done(), record=record, writes=writes)
        (finish,) = await self.engine.finisher.finish([unit])
        assert (finish.outcome, finish.skipped) == (Outcome.COMMITTED, 0), finish.error

    async def get(self, collection: str, one: str) -> Document:
        return (await self.engine.documents.fetch(collection, [one]))[one]

    async def all(self, collection: str) -> Sequence[Document]:
        return await self.engine.documents.find(collection, {}, 100_000)

    def sweeper(
        self,
        *services: Service,
        engine: Engine | None = None,
        more: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Sweeper:
        """Give a sweeper; without a cap, unless the test is about it."""
        given = {"observer": self.facts, "settings": SweepSettings(**{"cap": 0, **settings})}
        return Sweeper(
            services,
            engine or self.engine,
            clock=self.clock,
            chance=self.chance,
            **{**given, **(more or {})},
        )

    @asynccontextmanager
    async def sweeping(self, *services: Service, **given: Any) -> AsyncIterator[Sweeper]:
        """Have a sweeper running inside the block."""
        sweeper = self.sweeper(*services, **given)
        running = asyncio.create_task(sweeper.run())
        yield sweeper
        sweeper.stop()
        await running

    async def passed(self, delay: timedelta) -> None:
        """Let time pass while others do something."""
        end = self.now + delay
        while self.now < end:
            await self.clock.wait(min(timedelta(seconds=5), end - self.now))

    async def sweep(self, *services: Service, **settings: Any) -> SweepEnded:
        """Sweep once, as a process does that is started for it."""
        return await self.sweeper(*services, **settings).sweep_once()

    async def sent(self, queue: str) -> list[Delivery]:
        """Give what is in a queue, and take it out for good."""
        taken = list(await self.engine.bus.take([queue], 100_000))
        await self.engine.bus.settle([(delivery, Done()) for delivery in taken])
        return taken

    async def sent_ids(self, field: str = "message_doc_ids") -> list[str]:
        """Give the documents that the events in the queue for chunks are about; empty it."""
        return [data_of(each)[field][0] for each in await self.sent(CHUNKING)]

    async def totals(self) -> dict[str, float]:
        """Give the totals that are not 0."""
        kept = await sweeping_of(self.engine).totals.add("retry_job", {})
        return {name: value for name, value in kept.items() if value and "duration" not in name}


def data_of(delivery: Delivery) -> Any:
    return decode(delivery.body).data


def in_memory(state: State | None = None) -> OpenEngine:
    state = State() if state is None else state
    return lambda clock, chance: memory_engine(clock, chance, state)


def in_a_file(folder: Path) -> OpenEngine:
    return lambda clock, chance: sqlite_engine(
        folder / "headway.db", clock, chance, synchronous="off"
    )


def beside(store_of: Callable[[VirtualClock], StoreParts]) -> OpenEngine:
    """Give engines of a bus in memory with a store of another kind beside it."""
    state = State()
    return lambda clock, chance: with_store(bus_parts(state, clock), store_of(clock))


class Spied:
    """A port of which some methods do something else."""

    def __init__(self, inner: Any, **instead: Callable[..., Awaitable[Any]]) -> None:
        self.inner = inner
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        return self._instead.get(name) or getattr(self.inner, name)


def with_bus(engine: Engine, **instead: Callable[..., Awaitable[Any]]) -> Engine:
    """Give an engine whose bus does something else."""
    bus: Any = Spied(engine.bus, **instead)
    return replace(engine, bus=bus)


def with_candidates(engine: Engine, **instead: Callable[..., Any]) -> Engine:
    """Give an engine whose candidates do something else."""
    sweeping = sweeping_of(engine)
    candidates: Any = Spied(sweeping.candidates, **instead)
    return replace(engine, sweeping=replace(sweeping, candidates=candidates))


def sweeping_of(engine: Engine) -> Sweeping:
    assert engine.sweeping is not None
    return engine.sweeping


@asynccontextmanager
async def working(
    on: Yard | Trial, *services: Service, engine: Engine, name: str = "", **settings: Any
) -> AsyncIterator[Worker]:
    """Have a worker running inside the block, on an engine of the test's own."""
    worker = Worker(
        services,
        engine,
        clock=on.clock,
        chance=on.chance,
        observer=on.facts,
        settings=WorkerSettings(**settings),
        name=name,
    )
    running = asyncio.create_task(worker.run())
    yield worker
    worker.stop()
    await running
