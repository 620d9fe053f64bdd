"""Print the files that one path executes: `python tools/trace.py [PATH] [ENGINE] [--json]`.

Five paths, each through public names and on real servers that this program starts:

    event        one event: publish, handler, commit, in a worker that runs already and is idle
    document     one run of a sweeper that runs already, over one stuck document
    result       one result whose turn it is, through a resequencer that is open
    transaction  run_transaction with one conflict, then success
    operator     the command `headway failed requeue` with one dead letter

Counted are calls of functions in src/headway, in all threads, in the order in which they begin. Not
counted are the code of modules and classes, whatever an import calls, comprehensions, methods that
a dataclass makes, and coroutines that go on after an await. `entries` says how often a call in this
file came right after a call in another one; `returns` is the sum of all entries but the first of
each file: how often the path comes back to a file that it had left.

What timers and other threads do meanwhile would count too. So every path is traced three times,
and the trace with the fewest calls is shown; of the event, also how many calls an idle worker makes
in the same time.
"""

import argparse
import asyncio
import dis
import inspect
import io
import json
import os
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import asyncpg

import headway
from headway import Service, Sweeper, connect, create_operations_table, run_services
from headway.apps.cli import main as command
from headway.testing.facts import Recorder
from headway.testing.servers import MongoDB, PostgreSQL, RabbitMQ, Redis, Server
from headway.testing.trial import Trial

ROUNDS = 3
_ROOT = f"{Path(headway.__file__).parent}/"
_COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_RESUME = dis.opmap["RESUME"]
_CALM = 0.3
"""Seconds after which a worker with nothing to do has nothing left to do."""
_PATIENCE = 60.0
_INTERVAL = 2.0
"""Seconds between two runs of a sweeper."""
_STUCK_IN = timedelta(seconds=2.5 * _INTERVAL)
S = TypeVar("S", bound=Server)


@dataclass(frozen=True)
class Trace:
    """The files of one path, a file for every call."""

    calls: Sequence[str]
    seconds: float

    def rows(self) -> list[tuple[str, int, int]]:
        """Give each file, its calls and its entries, in the order of the first execution."""
        calls = Counter(self.calls)
        entries = Counter(self.calls[:1])
        entries.update(after for before, after in pairwise(self.calls) if before != after)
        return [(file, calls[file], entries[file]) for file in calls]

    def totals(self) -> dict[str, int]:
        rows = self.rows()
        returns = sum(entries for _, _, entries in rows) - len(rows)
        return {"files": len(rows), "calls": len(self.calls), "returns": returns}


class Tracer:
    """Notes the file of every call between `start` and `stop`, in all threads."""

    def __init__(self) -> None:
        self.last = Trace((), 0.0)
        self.idle: Trace | None = None
        """What a worker did that had nothing to do."""
        self._calls: list[str] | None = None
        self._began = 0.0
        self._files: dict[CodeType, str | None] = {}
        self._thread = threading.local()

    def install(self) -> None:
        """Listen in this thread and in those that start from now on."""
        threading.setprofile(self._hear)
        sys.setprofile(self._hear)

    def start(self) -> None:
        self._began, self._calls = time.perf_counter(), []

    def stop(self) -> None:
        if self._calls is not None:
            self.last = Trace(self._calls, time.perf_counter() - self._began)
            self._calls = None

    @contextmanager
    def tracing(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stop()

    def _hear(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_name == "<module>":
                self._thread.imports = self._imports() + 1
            elif self._calls is not None and not self._imports():
                file = self._file(code)
                if file is not None and _begins(frame):
                    self._calls.append(file)
        elif event == "return" and frame.f_code.co_name == "<module>":
            self._thread.imports = self._imports() - 1

    def _imports(self) -> int:
        """Count the modules that this thread is executing."""
        return max(getattr(self._thread, "imports", 0), 0)

    def _file(self, code: CodeType) -> str | None:
        if code not in self._files:
            is_function = code.co_flags & inspect.CO_NEWLOCALS
            counts = is_function and code.co_name not in _COMPREHENSIONS
            is_ours = code.co_filename.startswith(_ROOT)
            self._files[code] = code.co_filename.removeprefix(_ROOT) if counts and is_ours else None
        return self._files[code]


def _begins(frame: FrameType) -> bool:
    """Say whether a function begins, and is not a coroutine or a generator that goes on."""
    code = frame.f_code
    if not code.co_flags & _RESUMED:
        return True
    at = frame.f_lasti
    return code.co_code[at] == _RESUME and code.co_code[at + 1] & 3 == 0


@dataclass(frozen=True)
class Place:
    """An empty engine; without a bus it is in memory."""

    bus: str = ""
    has_store: bool = True
    effects: bool = False
    """The handler stores a document, if it can, and publishes an event."""


@dataclass
class Servers:
    """Servers that are started when they are first needed."""

    stack: ExitStack
    folder: Path
    running: dict[type[Server], Any] = field(default_factory=dict)

    def of(self, kind: type[S]) -> S:
        if kind not in self.running:
            self.running[kind] = self.stack.enter_context(kind())
        found: S = self.running[kind]
        return found

    @contextmanager
    def place(self, engine: str, *, effects: bool) -> Iterator[Place]:
        """Give an empty engine; HEADWAY_STORE names the store beside a broker."""
        store = None
        match engine.split("+"):
            case ["memory"]:
                bus = ""
            case ["sqlite"]:
                bus = f"sqlite:///{tempfile.mkdtemp(dir=self.folder)}/headway.db"
            case ["redis"]:
                bus = self.of(Redis).create_database()
            case ["postgres"]:
                bus = self.of(PostgreSQL).create_database()
            case ["rabbitmq", *beside]:
                bus = self.of(RabbitMQ).create_vhost()
                if beside == ["postgres"]:
                    store = self.of(PostgreSQL).create_database()
                elif beside == ["mongodb"]:
                    store = self.of(MongoDB).create_database()
        has_store = store is not None or engine != "rabbitmq"
        os.environ.pop("HEADWAY_STORE", None)
        if store is not None:
            os.environ["HEADWAY_STORE"] = store
        yield Place(bus, has_store, effects)
        if "rabbitmq" in engine:
            self.of(RabbitMQ).delete_vhost(bus)


class Ear(Recorder):
    """Hears facts, and calls a function with those of one kind."""

    def __init__(self, kind: str, then: Callable[[Any], object]) -> None:
        super().__init__()
        self._kind = kind
        self._then = then

    def tell(self, fact: Any) -> None:
        if type(fact).__name__ == self._kind:
            self._then(fact)


def _shop(place: Place) -> Service:
    shop = Service("shop", announces=["OrderReserved"])

    @shop.on("OrderPlaced", dedup="order")
    async def reserve(event: Any, work: Any) -> None:
        if place.effects:
            if place.has_store:
                work.documents("orders").insert_new({"_id": event.data["order"]})
            work.publish("OrderReserved", event.data)

    return shop


def event(place: Place, tracer: Tracer) -> None:
    _run(_event_in_memory(place, tracer) if not place.bus else _event(place, tracer))


async def _event(place: Place, tracer: Tracer) -> None:
    shop, workers = _shop(place), list[Any]()
    handled = _Handled(tracer)
    async with connect(place.bus) as connection:
        await connection.declare(shop)
        await connection.publish("OrderPlaced", {"order": "o-1"})
        running = asyncio.create_task(
            run_services(
                shop,
                bus=place.bus,
                observer=handled.ear,
                started=lambda worker, _engine: workers.append(worker),
            )
        )
        await handled.trace(lambda: connection.publish("OrderPlaced", {"order": "o-2"}))
        workers[0].stop()
        await running


async def _event_in_memory(place: Place, tracer: Tracer) -> None:
    trial = Trial(_shop(place))
    handled = _Handled(tracer)
    trial.facts = handled.ear
    await trial.publish("OrderPlaced", {"order": "o-1"})
    async with trial.running():
        await handled.trace(lambda: trial.publish("OrderPlaced", {"order": "o-2"}))


class _Handled:
    """Traces one event, after a first one was handled, and the idle worker afterwards."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._is_settled = asyncio.Event()
        self.ear = Ear("Processed", lambda _: asyncio.get_running_loop().call_soon(self._settled))

    def _settled(self) -> None:
        self._tracer.stop()
        self._is_settled.set()

    async def trace(self, publish: Callable[[], Any]) -> None:
        await self._is_settled.wait()
        self._is_settled.clear()
        await asyncio.sleep(_CALM)
        self._tracer.start()
        await publish()
        await self._is_settled.wait()
        traced = self._tracer.last
        await asyncio.sleep(_CALM)
        with self._tracer.tracing():
            await asyncio.sleep(traced.seconds)
        self._tracer.last, self._tracer.idle = traced, self._tracer.last


async def _handle(place: Place, service: Service, event_type: str, fact: str) -> None:
    """Have a worker handle one event, until it tells of it."""
    workers = list[Any]()
    async with connect(place.bus) as connection:
        await connection.declare(service)
        await connection.publish(event_type, {"order": "o-1"})
    await run_services(
        service,
        bus=place.bus,
        observer=Ear(fact, lambda _: workers[0].stop()),
        started=lambda worker, _engine: workers.append(worker),
    )


def document(place: Place, tracer: Tracer) -> None:
    _run(_document_in_memory(tracer) if not place.bus else _document(place, tracer))


def _swept() -> Service:
    shop = Service("shop")

    @shop.on("OrderPlaced", documents=("orders", "order"))
    async def reserve(event: Any, work: Any) -> None:
        """Reserve nothing: the sweeper only sends the event."""

    return shop


def _order(last: datetime) -> dict[str, Any]:
    """Give a document that is stuck when its last attempt was a day ago."""
    given = {"_id": "o-1", "status": "pending", "attemptCount": 1}
    return {**given, "lastAttemptTime": last.isoformat()}


async def _document(place: Place, tracer: Tracer) -> None:
    keeper = Service("keeper")

    @keeper.on("OrderKept")
    async def keep(_event: Any, work: Any) -> None:
        last = datetime.now(UTC) - timedelta(days=1) + _STUCK_IN
        work.documents("orders").insert_new(_order(last))

    await _handle(place, keeper, "OrderKept", "Processed")
    loop = asyncio.get_running_loop()

    def ended(run: Any) -> None:
        if run.collections[0].requeued:
            loop.call_soon(tracer.stop)
            sweeper.stop()
        else:
            pause = _INTERVAL - run.elapsed.total_seconds()
            loop.call_later(pause - 0.1, tracer.start)  # shortly before the next run

    os.environ["RETRY_JOB_INTERVAL_SECONDS"] = str(_INTERVAL)
    sweeper = Sweeper(_swept(), bus=place.bus, observer=Ear("SweepEnded", ended))
    await sweeper.run()


async def _document_in_memory(tracer: Tracer) -> None:
    trial = Trial(_swept())
    await trial.open()
    await trial.put("orders", _order(trial.clock.now() - timedelta(days=1)))
    with tracer.tracing():
        ended = await trial.sweep()
    _expect(ended.collections[0].requeued == 1, "the sweep sent no event")


def result(place: Place, tracer: Tracer) -> None:
    async def apply(_work: Any) -> None:
        """Apply nothing."""

    async def offer() -> None:
        never = timedelta(hours=1)
        async with headway.Resequencer(apply, url=place.bus, look_every=never) as order:
            await order.offer("order-7", 1)
            await asyncio.sleep(_CALM)
            with tracer.tracing():
                fate = await order.offer("order-7", 2)
        _expect(fate == "applied", f"the result was {fate}")

    _run(offer())


def transaction(place: Place, tracer: Tracer) -> None:
    if place.bus.startswith("sqlite"):
        _transaction_on_sqlite(place.bus.removeprefix("sqlite:///"), tracer)
    else:
        _run(_transaction_on_postgres(place.bus, tracer))


def _transaction_on_sqlite(path: str, tracer: Tracer) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("create table account as select 0 as balance")
    create_operations_table(lambda: sqlite3.connect(path))
    other.execute("begin immediate")
    attempts = 0

    def fresh() -> sqlite3.Connection:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            other.rollback()
        return sqlite3.connect(path, timeout=0)

    def deposit(connection: sqlite3.Connection) -> None:
        connection.execute("update account set balance = balance + 100")

    with tracer.tracing():
        headway.run_transaction(fresh, deposit, operation_id="deposit-1", min_wait=0.001)
    other.close()
    _expect(attempts == 2, f"there were {attempts} attempts")  # noqa: PLR2004 (one conflict)


async def _transaction_on_postgres(url: str, tracer: Tracer) -> None:
    async def fresh() -> Any:
        return await asyncpg.connect(url)

    other = await fresh()
    await other.execute("create table account as select 0 as balance")
    await create_operations_table(fresh)
    attempts = 0

    async def deposit(connection: Any) -> None:
        nonlocal attempts
        attempts += 1
        balance = await connection.fetchval("select balance from account")
        if attempts == 1:
            await other.execute("update account set balance = balance + 1")
        await connection.execute("update account set balance = $1", balance + 100)

    with tracer.tracing():
        await headway.run_transaction(
            fresh, deposit, operation_id="deposit-1", isolation="serializable", min_wait=0.001
        )
    await other.close()
    _expect(attempts == 2, f"there were {attempts} attempts")  # noqa: PLR2004 (one conflict)


def operator(place: Place, tracer: Tracer) -> None:
    shop = Service("shop")

    @shop.on("OrderPlaced", dedup="order")
    async def reserve(event: Any, _work: Any) -> None:
        raise TypeError(f"cannot reserve {event.data['order']}")

    _run(_handle(place, shop, "OrderPlaced", "DeadLettered"))
    sys.argv = words = ["headway", "failed", "requeue", "shop", "--bus", place.bus]
    said = io.StringIO()
    with redirect_stdout(said), tracer.tracing():
        try:
            command()
        except SystemExit as end:
            _expect(not end.code, f"{' '.join(words)} ended with {end.code}: {said.getvalue()}")
    _expect(said.getvalue().startswith("1 of 1"), said.getvalue())


def _run(path: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(path, _PATIENCE))


def _expect(is_so: bool, otherwise: str) -> None:  # noqa: FBT001 (as assert has it)
    if not is_so:
        sys.exit(f"This was not the path that is meant: {otherwise}")


_BESIDE = ("rabbitmq+postgres", "rabbitmq+mongodb")
PATHS: dict[str, tuple[Callable[[Place, Tracer], None], tuple[str, ...]]] = {
    "event": (event, ("sqlite", "rabbitmq", *_BESIDE, "memory")),
    "document": (document, ("sqlite", *_BESIDE, "memory")),
    "result": (result, ("sqlite", "redis")),
    "transaction": (transaction, ("sqlite", "postgres")),
    "operator": (operator, ("sqlite", "rabbitmq", *_BESIDE)),
}


def trace(
    path: str, engine: str, servers: Servers, tracer: Tracer, *, effects: bool
) -> dict[str, Any]:
    """Trace a path some times, and give the figures of the trace with the fewest calls."""
    traces = []
    for _ in range(ROUNDS):
        with servers.place(engine, effects=effects) as place:
            PATHS[path][0](place, tracer)
        traces.append((tracer.last, tracer.idle))
    fewest, idle = min(traces, key=lambda each: len(each[0].calls))
    named = {"path": path, "engine": engine, **fewest.totals()}
    if idle is not None:
        named["idle"] = len(idle.calls)
    rows = [dict(zip(("file", "calls", "entries"), row, strict=True)) for row in fewest.rows()]
    return {**named, "executed": rows}


def _show(found: dict[str, Any], *, table: bool) -> None:
    if table:
        print(f"{'file':<48}{'calls':>7}{'entries':>9}")
    for row in found["executed"] if table else ():
        print(f"{row['file']:<48}{row['calls']:>7}{row['entries']:>9}")
    said = f"{found['path']} on {found['engine']}: {found['files']} files, "
    said += f"{found['returns']} returns, {found['calls']} calls"
    if "idle" in found:
        said += f"; an idle worker makes {found['idle']} calls in the same time"
    print(said)


def main() -> int:
    engines = sorted({engine for _, engines in PATHS.values() for engine in engines})
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", nargs="?", choices=PATHS, help="all of them if none is named")
    parser.add_argument("engine", nargs="?", choices=engines, help="all that have this path")
    parser.add_argument(
        "--effects",
        action="store_true",
        help="the handler of the event also stores a document and publishes an event",
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON for each trace")
    asked = parser.parse_args()
    meant = [
        (path, engine)
        for path, (_, of_path) in PATHS.items()
        for engine in of_path
        if asked.path in {path, None} and asked.engine in {engine, None}
    ]
    if not meant:
        parser.error(f"{asked.path} has no {asked.engine}: {', '.join(PATHS[asked.path][1])}")
    tracer = Tracer()
    tracer.install()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(chdir(folder))  # settings of the folder we are in are not meant
        servers = Servers(stack, folder)
        for path, engine in meant:
            tracer.idle = None
            found = trace(path, engine, servers, tracer, effects=asked.effects)
            if asked.json:
                print(json.dumps(found), flush=True)
            else:
                _show(found, table=len(meant) == 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
