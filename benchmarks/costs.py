"""What must not grow with the data: the scrape of metrics, and housekeeping on SQLite.

The same is done at two or three sizes in each round; the largest may take twice as long as the
smallest. The steps of SQLite's virtual machine are given too: they do not depend on the machine.
"""

import asyncio
import itertools
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.measure import Table, interleave
from headway import Event, Lifecycle, Service, Work
from headway.adapters.memory.bus import MemoryBus
from headway.adapters.memory.history import MemoryHistory
from headway.adapters.memory.letters import MemoryLetters
from headway.adapters.memory.places import MemoryPlaces
from headway.adapters.memory.unrouted import MemoryUnrouted
from headway.adapters.sqlite import schema
from headway.adapters.sqlite.connection import Connection, connect
from headway.adapters.sqlite.rows import seconds
from headway.assembly.metrics_server import metrics_server
from headway.clock import SystemChance, SystemClock
from headway.runtime.sweep_doubts import doubt
from headway.runtime.sweep_targets import find_targets
from headway.settings import SweepSettings
from headway.testing.engines import (
    SqliteEngine,
    State,
    postgres_store,
    sqlite_engine,
    sqlite_sequences,
    with_store,
)
from headway.testing.ports import (
    Bus,
    BusPlaces,
    Completion,
    Engine,
    History,
    Letters,
    Offer,
    Parked,
    Queue,
    Unrouted,
    instant,
)
from headway.testing.servers import PostgreSQL
from headway.testing.servers.loopback import HOST, http_request

SCRAPED = (10, 100_000, 3_000_000)
KEPT = (1_000, 100_000)
LIMIT = 2.0
TIMES = 20
"""How often each is done in a round."""

_CLOCK, _CHANCE = SystemClock(), SystemChance()
_DAY = timedelta(days=1)
_QUEUE = Queue(name="shop.orders", event_types=("OrderPaid",), failed="shop.failed")
_NUMBERS = "with recursive n(i) as (select 1 union all select i + 1 from n where i < :many)"
_RECORDS = "headway_done (key, operation, queue, generation, ended, at, letter, failed_queue)"
_DONE = f"""
insert into {_RECORDS} {_NUMBERS}
select 'done ' || i, 'done ' || i, :queue, '0', 'done', :at, null, '' from n
"""  # noqa: S608 (names of our own)
_UNDECIDED = f"""
insert into {_RECORDS} {_NUMBERS}
select 'failed ' || i, 'failed ' || i, :queue, '0', 'failed', :at, 'l' || i, :failed from n
"""  # noqa: S608 (names of our own)
_READY = f"""
insert into headway_items
    (queue, due, operation, generation, failures, not_yet, parked_seconds, requeues, body)
{_NUMBERS} select :queue, :at, 'ready ' || i, '0', 0, 0, 0, 0, '{{}}' from n
"""  # noqa: S608 (names of our own)
_COUNTED = "update headway_queues set items = items + :many where name = :queue"
_DOCUMENTS = f"""
insert into headway_documents (collection, id, body) {_NUMBERS}
select 'messages', 'm' || i, json_object(
    '_id', 'm' || i, 'status', 'pending', 'attemptCount', 1, 'lastAttemptTime', :now,
    'leaseToken', iif(i <= 110, 't', null), 'leaseUntil', iif(i <= 110, :over, null)
) from n
"""  # noqa: S608 (names of our own)
_POSTGRES_DONE = """
insert into headway_done (key, operation, queue, generation, ended, at, failed_queue)
select 'done ' || i, 'done ' || i, 'q', '0', 'done', now(), '' from generate_series(1, $1::int) i
"""

Turn = Callable[[], Awaitable[float]]
"""Does something some times, and gives the nanoseconds of one."""
Made = Callable[["Stage", int], Coroutine[Any, Any, Turn]]
"""Sets something up at a size."""


class Steps:
    """Counts the steps of SQLite on every connection of this process."""

    every = 100

    def __init__(self) -> None:
        self.taken = 0

        def counting(*args: Any, **options: Any) -> Connection:
            connection = connect(*args, **options)
            connection.set_progress_handler(self._more, self.every)
            return connection

        setattr(schema, "connect", counting)  # noqa: B010 (mypy has it that it is not exported)

    def _more(self) -> None:
        self.taken += self.every


STEPS = Steps()


@dataclass(frozen=True)
class _Parts:
    bus: Bus
    letters: Letters
    places: BusPlaces
    unrouted: Unrouted
    history: History


class Stage:
    """Files, servers and engines, which are all gone afterwards."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._files = 0

    def closes(self, close: Callable[[], Awaitable[None]]) -> None:
        """Do this when the stage is left."""
        self._stack.push_async_callback(close)

    def file(self) -> Path:
        self._files += 1
        return self._folder / f"{self._files}.db"

    async def sqlite(self, *statements: str, many: int) -> SqliteEngine:
        """Open an engine on a file of its own, with rows in it."""
        path, now = self.file(), _CLOCK.now()
        engine = sqlite_engine(path, _CLOCK, _CHANCE, synchronous="off")
        self.closes(engine.close)
        await engine.bus.open([_QUEUE])
        values = {
            "many": many,
            "queue": _QUEUE.name,
            "failed": _QUEUE.failed,
            "at": seconds(now - _DAY),
            "now": instant(now),
            "over": instant(now - timedelta(seconds=10)),
        }
        with closing(sqlite3.connect(path)) as connection, connection:
            for statement in statements:
                connection.execute(statement, values)
        return engine

    async def postgres(self, url: str, many: int) -> Engine:
        """Open a bus in memory with a store that has so many done records."""
        state = State()
        parts = _Parts(
            MemoryBus(state, _CLOCK, _CHANCE),
            MemoryLetters(state, _CLOCK),
            MemoryPlaces(state, _CLOCK),
            MemoryUnrouted(state, _CLOCK),
            MemoryHistory(state.notes),
        )
        engine = with_store(parts, postgres_store(url, _CLOCK))
        self.closes(engine.close)
        await engine.open([_QUEUE])
        connection = await asyncpg.connect(url)
        await connection.execute(_POSTGRES_DONE, many)
        await connection.execute("vacuum analyze headway_done")
        await connection.close()
        return engine


def measure(rounds: int) -> list[Table]:
    with asyncio.Runner() as runner, PostgreSQL() as server:
        return list(_tables(runner, server, max(rounds // 3, 5)))


def _tables(runner: asyncio.Runner, server: PostgreSQL, rounds: int) -> Iterator[Table]:
    for title, things, sizes, made in (
        ("Scrape on SQLite", "done records", SCRAPED, _scrape(_DONE)),
        ("Scrape on SQLite", "ready events", SCRAPED, _scrape(_READY, _COUNTED)),
        ("Scrape with a PostgreSQL store", "done records", SCRAPED, _scrape_store(server)),
        ("Forget old records on SQLite", "undecided failures", KEPT, _forget),
        ("Resume a queue on SQLite", "ready events", KEPT, _resume),
        ("Offer and complete a result on SQLite", "held results", KEPT, _results),
        ("Doubt lapsed leases on SQLite", "pending documents", KEPT, _doubt),
    ):
        with tempfile.TemporaryDirectory() as folder:
            stack = AsyncExitStack()
            stage = Stage(Path(folder), stack)
            try:
                turns = {f"{many:,} {things}": runner.run(made(stage, many)) for many in sizes}
                yield _table(runner, f"{title}, by {things}", turns, rounds)
            finally:
                runner.run(stack.aclose())


def _table(runner: asyncio.Runner, title: str, turns: Mapping[str, Turn], rounds: int) -> Table:
    steps: dict[str, float] = {}

    def taken(name: str) -> float:
        before = STEPS.taken
        nanoseconds = runner.run(_started(turns[name]))
        steps[name] = (STEPS.taken - before) / TIMES
        return nanoseconds

    smallest, *_, largest = turns
    for name in turns:
        taken(name)  # once for the caches
    table = interleave(
        title, {name: partial(taken, name) for name in turns}, against=smallest, rounds=rounds
    )
    table.unit = "ns each"
    table.goal(f"{largest} / {smallest}", table.rows[largest][1], LIMIT)
    if any(steps.values()):
        table.notes.append(
            "steps of SQLite: "
            + "; ".join(f"{name} {number:,.0f}" for name, number in steps.items())
        )
        table.goal("the same, in steps", steps[largest] / steps[smallest], LIMIT)
    return table


async def _started(turn: Turn) -> float:
    return await turn()


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter_ns()
    for _ in range(TIMES):
        await work()
    return (time.perf_counter_ns() - began) / TIMES


async def _scraped(engine: Engine) -> float:
    """Ask for /metrics, as Prometheus does."""
    loop = asyncio.get_running_loop()
    with metrics_server(engine, loop, host=HOST, port=0) as port:

        async def scraped() -> None:
            _, said = await asyncio.to_thread(http_request, "GET", port, "/metrics")
            if b"headway_engine_up 1.0" not in said:
                raise RuntimeError("the engine was called unavailable")

        return await _timed(scraped)


def _scrape(*statements: str) -> Made:
    async def made(stage: Stage, many: int) -> Turn:
        return partial(_scraped, await stage.sqlite(*statements, many=many))

    return made


def _scrape_store(server: PostgreSQL) -> Made:
    async def made(stage: Stage, many: int) -> Turn:
        return partial(_scraped, await stage.postgres(server.create_database(), many))

    return made


async def _forget(stage: Stage, many: int) -> Turn:
    engine = await stage.sqlite(_UNDECIDED, many=many)
    return partial(_timed, lambda: engine.records.forget(_CLOCK.now(), 1_000))


async def _resume(stage: Stage, many: int) -> Turn:
    engine = await stage.sqlite(_READY, _COUNTED, many=many)

    async def turn() -> float:
        total = 0.0
        for _ in range(TIMES):
            taken = await engine.bus.take([_QUEUE.name], 3)
            parked = [(each, Parked(_CLOCK.now() + _DAY, each.travel)) for each in taken]
            await engine.bus.settle(parked)
            began = time.perf_counter_ns()
            if await engine.bus.resume(_QUEUE.name) != len(parked):
                raise RuntimeError("not all was resumed")
            total += time.perf_counter_ns() - began
        return total / TIMES

    return turn


async def _results(stage: Stage, many: int) -> Turn:
    sequences = sqlite_sequences(stage.file(), _CLOCK, synchronous="off")
    stage.closes(sequences.close)
    positions = itertools.count(1)

    def offer(position: int) -> Offer:
        return Offer("key", position, b"{}", f"offered {position}")

    await sequences.offer([offer(0)])
    first = [offer(next(positions)) for _ in range(many)]
    for start in range(0, many, 1_000):
        await sequences.offer(first[start : start + 1_000])
    done = itertools.count()

    async def one_more() -> None:
        await sequences.offer([offer(next(positions))])
        (turn,) = await sequences.complete([Completion("key", next(done), "offered 0")])
        if turn.work is None:
            raise RuntimeError(f"the next result was not handed out: {turn}")

    return partial(_timed, one_more)


async def _doubt(stage: Stage, many: int) -> Turn:
    service = Service("shop", lifecycles=[Lifecycle("messages", lease=timedelta(minutes=1))])

    @service.on("OrderPaid", documents=("messages", "ids"))
    async def handle(event: Event, work: Work) -> None: ...

    engine = await stage.sqlite(_DOCUMENTS, many=many)
    (target,) = find_targets([service], SweepSettings())
    sweeping = engine.sweeping
    if sweeping is None:
        raise RuntimeError("there is nothing to sweep with")
    await sweeping.candidates.prepare([target.rule])

    async def doubted() -> None:
        now = _CLOCK.now()
        if await doubt(target, sweeping, now, now - _DAY) is None:
            raise RuntimeError("lapsed leases were believed")

    return partial(_timed, doubted)
