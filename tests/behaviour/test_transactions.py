"""What run_transaction promises on every driver: no success that is none, and none twice."""

import asyncio
import contextlib
import functools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.rows import dict_row, scalar_row

from headway import (
    AlreadyStoredError,
    ConfigurationError,
    DuplicateEventError,
    create_operations_table,
    run_transaction,
)
from headway.errors import TransactionEndedError, TransactionRolledBackError
from headway.facts import GaveUp, Recovered, RetryScheduled
from headway.retrying import Reason
from headway.testing.chance import Fixed
from headway.testing.clock import VirtualClock
from headway.testing.facts import Recorder
from tests.behaviour.engines import KINDS, Asyncpg, Engine, Sqlite

QUICKLY: dict[str, Any] = {"stop_after": 40, "min_wait": 0.002, "max_wait": 0.2}


@pytest.fixture(params=[*KINDS, "sqlite"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    engine: Engine = (
        Sqlite(str(tmp_path / "test.db"))
        if request.param == "sqlite"
        else KINDS[request.param](request.getfixturevalue("postgres_database"))
    )
    await engine.prepare()
    return engine


@pytest.fixture
async def database(postgres_database: str) -> str:
    await Asyncpg(postgres_database).prepare()
    return postgres_database


@pytest.fixture
async def file(tmp_path: Path) -> str:
    engine = Sqlite(str(tmp_path / "test.db"))
    await engine.prepare()
    return engine.url


async def effects(engine: Engine) -> list[str]:
    return [row[0] for row in await engine.rows("select operation from effects order by 1")]


async def total(engine: Engine) -> int:
    return int((await engine.rows("select total from counters"))[0][0])


async def call(engine: Engine, callback: Callable[[Any], Any], **options: Any) -> Any:
    """Run a transaction of which the callback gets what executes statements, on any driver."""

    async def awaited(connection: Any) -> Any:
        for statement in callback(connection):
            await connection.execute(statement)

    def plain(connection: Any) -> Any:
        for statement in callback(connection):
            connection.execute(statement)

    options = {"operation_id": "a", "clock": VirtualClock(), **options}
    if hasattr(engine, "store_now"):
        return await asyncio.to_thread(lambda: run_transaction(engine.connect, plain, **options))
    return await run_transaction(engine.connect, awaited, **options)


def conflict_times(times: int) -> Callable[[], None]:
    failures = iter(range(times))

    def conflict() -> None:
        if next(failures, None) is not None:
            raise RuntimeError("change conflicts with another transaction, please retry: (OC000)")

    return conflict


@pytest.mark.parametrize("expected", [(), LookupError])
async def test_an_error_in_the_callback_leaves_nothing_behind_and_is_a_failure_unless_expected(
    engine: Engine, expected: Any
) -> None:
    recorder = Recorder()

    def fail() -> None:
        raise LookupError("no such car")

    with pytest.raises(LookupError, match="no such car"):
        await engine.store("a", before=fail, expected=expected, observer=recorder)
    assert [type(fact) for fact in recorder.facts] == ([] if expected else [GaveUp])
    assert await effects(engine) == []
    assert await engine.rows("select * from headway_operations") == []
    assert await engine.store("a") == "stored a"


async def test_somebody_elses_operation_is_a_duplicate(engine: Engine) -> None:
    recorder = Recorder()
    await engine.store("a", context={"transaction_id": "a field for the log, and no token"})
    with pytest.raises(DuplicateEventError) as caught:
        await engine.store("a", observer=recorder, context={"transaction_id": "a field"})
    assert caught.value.operation_id == "a"
    assert recorder.facts == []
    assert await total(engine) == 1


async def test_our_own_operation_of_an_earlier_call_is_no_duplicate(engine: Engine) -> None:
    recorder = Recorder()
    assert await engine.store("a", token="mine") == "stored a"
    with pytest.raises(AlreadyStoredError):
        await engine.store("a", token="mine", observer=recorder)
    assert recorder.facts == []
    assert await total(engine) == 1


async def test_a_conflict_is_retried_on_a_fresh_connection_under_one_token(engine: Engine) -> None:
    recorder = Recorder()
    answer = await engine.store(
        "a",
        before=conflict_times(2),
        clock=VirtualClock(),
        observer=recorder,
        chance=Fixed(0.5),
        context={"event_id": "e-1"},
    )
    assert answer == "stored a"
    assert await effects(engine) == ["a"]
    retries = recorder.of(RetryScheduled)
    assert [fact.delay.total_seconds() for fact in retries] == [0.15, 0.25]
    assert [fact.attempts for fact in recorder.of(Recovered)] == [3]
    first, second = (fact.context for fact in retries)
    assert first == second
    assert first["event_id"] == "e-1"
    tokens = await engine.rows("select token from headway_operations")
    assert tokens == [(first["transaction_id"],)]


async def test_attempts_end_and_the_last_error_is_raised(engine: Engine) -> None:
    recorder = Recorder()
    options: dict[str, Any] = {"clock": VirtualClock(), "observer": recorder, "stop_after": 3}
    with pytest.raises(RuntimeError, match="OC000"):
        await engine.store("a", before=conflict_times(9), **options)
    (gave_up,) = recorder.of(GaveUp)
    assert (gave_up.reason, gave_up.failure.attempt) == (Reason.MAX_ATTEMPTS_EXCEEDED, 3)
    assert await effects(engine) == []


async def test_a_missing_operations_table_names_the_cure(engine: Engine) -> None:
    await engine.execute("drop table headway_operations")
    with pytest.raises(Exception, match="headway_operations") as caught:
        await engine.store("a")
    assert "headway.create_operations_table(connect)" in "".join(caught.value.__notes__)


async def test_parallel_transactions_on_one_row_all_end_well(engine: Engine) -> None:
    options = dict(QUICKLY)
    if not isinstance(engine, Sqlite):
        options["isolation"] = "serializable"
    await asyncio.gather(*(engine.store(f"op-{n}", **options) for n in range(12)))
    assert await effects(engine) == sorted(f"op-{n}" for n in range(12))
    assert await total(engine) == 12


async def test_the_same_operation_in_parallel_is_stored_once(engine: Engine) -> None:
    calls = (engine.store("same", **QUICKLY) for _ in range(8))
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert ends.count("stored same") == 1
    assert sum(isinstance(end, DuplicateEventError) for end in ends) == 7
    assert await total(engine) == 1


# Callbacks that do what they should not


INSERT = "insert into effects values ('lost', 'x')"


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_callback_that_ends_the_transaction_itself_is_no_success(
    engine: Engine, end: str
) -> None:
    with pytest.raises(TransactionEndedError):
        await call(engine, lambda _: [INSERT, end])


async def test_a_callback_that_commits_and_then_fails_is_no_success(engine: Engine) -> None:
    """The next attempt meets our own row, although we never said COMMIT."""
    recorder = Recorder()

    def statements(_: Any) -> Any:
        yield from (INSERT, "commit")
        raise ConnectionError

    with pytest.raises(TransactionEndedError):
        await call(engine, statements, observer=recorder)
    assert len(recorder.of(RetryScheduled)) == 1


async def test_an_error_swallowed_by_the_callback_is_not_taken_for_success(database: str) -> None:
    async def by_asyncpg(connection: Any) -> None:
        await connection.execute(INSERT)
        with contextlib.suppress(asyncpg.PostgresError):
            await connection.execute("insert into nowhere values (1)")

    def by_psycopg(connection: psycopg.Connection) -> None:
        connection.execute(INSERT)
        with contextlib.suppress(psycopg.Error):
            connection.execute("insert into nowhere values (1)")

    with pytest.raises(TransactionRolledBackError):
        await run_transaction(lambda: asyncpg.connect(database), by_asyncpg, operation_id="one")
    with pytest.raises(TransactionRolledBackError):
        run_transaction(lambda: psycopg.connect(database), by_psycopg, operation_id="two")
    assert await effects(Asyncpg(database)) == []


async def test_callbacks_may_nest_transactions_and_be_objects(database: str) -> None:
    class ByAsyncpg:
        async def __call__(self, connection: Any) -> None:
            async with connection.transaction():
                await connection.execute("insert into effects values ('asyncpg', 'x')")

    def by_psycopg(connection: psycopg.Connection) -> None:
        with connection.transaction():
            connection.execute("insert into effects values ('psycopg', 'x')")

    await run_transaction(lambda: asyncpg.connect(database), ByAsyncpg(), operation_id="one")
    run_transaction(lambda: psycopg.connect(database), by_psycopg, operation_id="two")
    assert await effects(Asyncpg(database)) == ["asyncpg", "psycopg"]


async def test_what_the_database_refuses_at_commit_is_an_answer(database: str) -> None:
    """Nothing is in doubt then."""
    engine, recorder = Asyncpg(database), Recorder()
    await engine.execute(
        """
        create function refuse() returns trigger language plpgsql as
            $$ begin raise exception 'books are closed' using errcode = 'P0001'; end $$;
        create constraint trigger refuse after insert on effects
            deferrable initially deferred for each row execute function refuse();
        """
    )
    with pytest.raises(asyncpg.RaiseError, match="books are closed"):
        await engine.store("a", observer=recorder)
    assert [fact.reason for fact in recorder.of(GaveUp)] == [Reason.NON_RETRYABLE]
    assert await effects(engine) == []


# Connections


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


FACTORIES: dict[str, Callable[[str], Any]] = {
    "dicts of sqlite": lambda file: with_factories(file, _as_dict, str),
    "scalars of sqlite": lambda file: with_factories(file, lambda _, row: row[0], str),
    "bytes of sqlite": lambda file: with_factories(file, sqlite3.Row, bytes),
    "dicts": lambda url: psycopg.connect(url, row_factory=dict_row),
    "scalars": lambda url: psycopg.connect(url, row_factory=scalar_row),
    "raw": lambda url: psycopg.connect(url, cursor_factory=psycopg.RawCursor),
}


def with_factories(file: str, row_factory: Any, text_factory: Any) -> sqlite3.Connection:
    connection = sqlite3.connect(file)
    connection.row_factory = row_factory
    connection.text_factory = text_factory
    return connection


@pytest.mark.parametrize("name", FACTORIES)
def test_row_and_cursor_factories_do_not_matter(file: str, database: str, name: str) -> None:
    where = file if name.endswith("sqlite") else database

    def store(token: str) -> str:
        connect = functools.partial(FACTORIES[name], where)
        return run_transaction(connect, lambda _: "stored", operation_id="a", token=token)

    assert store("mine") == "stored"
    with pytest.raises(AlreadyStoredError):
        store("mine")
    with pytest.raises(DuplicateEventError):
        store("another")


def test_every_connection_is_closed_and_one_that_does_not_close_changes_nothing(file: str) -> None:
    class Sticky(sqlite3.Connection):
        def close(self) -> None:
            super().close()
            raise ConnectionError("will not go")

    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        opened.append(sqlite3.connect(file, factory=Sticky))
        return opened[-1]

    def callback(connection: sqlite3.Connection) -> str:
        if len(opened) < 4:
            raise RuntimeError("(OC001)")
        return "done"

    assert run_transaction(connect, callback, operation_id="a", clock=VirtualClock()) == "done"
    assert len(opened) == 4
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("select 1")


async def test_a_cancelled_transaction_closes_its_connection(database: str) -> None:
    engine, begun = Asyncpg(database), asyncio.Event()

    async def callback(connection: Any) -> None:
        await connection.execute(INSERT)
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run_transaction(engine.connect, callback, operation_id="a"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await effects(engine) == []
    assert await engine.store("a") == "stored a"


async def test_many_may_make_the_operations_table_at_once(postgres_database: str) -> None:
    connects: list[Callable[[], Any]] = [
        KINDS[n](postgres_database).connect for n in ("asyncpg", "psycopg-async")
    ]
    for _ in range(3):
        await asyncio.gather(*(create_operations_table(connect) for connect in connects * 10))
        await Asyncpg(postgres_database).execute("drop table headway_operations")


# What is refused


def in_transaction(database: str) -> Any:
    connection = psycopg.connect(database)
    connection.execute("set statement_timeout = '5s'")
    return connection


async def test_what_cannot_be_used_is_refused(database: str) -> None:
    def callback(_: Any) -> None:
        raise AssertionError("must not run")

    refused: list[tuple[Any, str]] = [
        (lambda: asyncpg.connect(database), "'async def'"),
        (lambda: in_transaction(database), "inside a transaction"),
        (object, r"builtins\.object"),
        ("test.db", "connect"),
        (sqlite3.connect(":memory:"), "connect"),
    ]
    for connect, decisive in refused:
        with pytest.raises(ConfigurationError, match=decisive):
            run_transaction(connect, callback, operation_id="a")
    given: Any
    for given in ("", 7, None):
        with pytest.raises(ConfigurationError, match=f"operation_id={given!r}"):
            run_transaction(object, callback, operation_id=given)
    for connect, known in (
        (lambda: psycopg.connect(database), "repeatable_read"),
        (lambda: sqlite3.connect(":memory:"), "immediate"),
    ):
        with pytest.raises(ConfigurationError, match=f"isolation='solid'.*{known}"):
            run_transaction(connect, callback, operation_id="a", isolation="solid")
