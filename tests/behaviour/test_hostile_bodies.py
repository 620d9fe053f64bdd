"""Bodies and connections that do what they should not: no success that is none, none twice."""

import asyncio
import functools
import sqlite3
import sys
from collections.abc import Callable
from datetime import timedelta
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
    OutcomeUnknownError,
    create_operations_table,
    run_transaction,
)
from headway.adapters.postgres.by_asyncpg import AsyncpgDriver
from headway.errors import TransactionEndedError
from headway.facts import CommitResolved, RetryScheduled
from headway.runtime.plan import follow_async
from headway.testing.clock import VirtualClock
from headway.testing.facts import Recorder
from headway.testing.proxy import Fault, Proxy
from headway.testing.servers import PostgreSQL, wait_until
from tests.behaviour.engines import Asyncpg, Psycopg, Sqlite


@pytest.fixture
async def database(postgres_database: str) -> str:
    await Asyncpg(postgres_database).prepare()
    return postgres_database


@pytest.fixture
async def file(tmp_path: Path) -> str:
    engine = Sqlite(str(tmp_path / "test.db"))
    await engine.prepare()
    return engine.url


async def effects(database: str) -> int:
    return int((await Asyncpg(database).rows("select count(*) from effects"))[0][0])


def test_a_body_that_rolls_back_is_no_success(database: str, file: str) -> None:
    def body(connection: Any) -> str:
        connection.execute("insert into effects values ('lost', 'x')")
        connection.rollback()
        return "said well"

    for connect in (lambda: psycopg.connect(database), lambda: sqlite3.connect(file)):
        with pytest.raises(TransactionEndedError):
            run_transaction(connect, body, operation_id="a")


async def test_a_body_that_rolls_back_on_asyncpg_is_no_success(database: str) -> None:
    async def body(connection: Any) -> None:
        await connection.execute("rollback")

    with pytest.raises(TransactionEndedError):
        await run_transaction(lambda: asyncpg.connect(database), body, operation_id="a")


def test_a_body_that_commits_and_then_fails_is_no_success(database: str, file: str) -> None:
    """The next attempt meets our own row, although we never said COMMIT."""

    def body(connection: Any) -> None:
        connection.execute("insert into effects values ('half', 'x')")
        connection.commit()
        raise ConnectionError

    for connect in (lambda: psycopg.connect(database), lambda: sqlite3.connect(file)):
        recorder = Recorder()
        with pytest.raises(TransactionEndedError):
            run_transaction(
                connect, body, operation_id="a", clock=VirtualClock(), observer=recorder
            )
        assert len(recorder.of(RetryScheduled)) == 1


def test_the_usual_with_block_of_sqlite3_is_told_of(file: str) -> None:
    def body(connection: sqlite3.Connection) -> None:
        with connection:
            connection.execute("insert into effects values ('a', 'x')")

    with pytest.raises(TransactionEndedError, match="what it committed is stored"):
        run_transaction(lambda: sqlite3.connect(file), body, operation_id="a")


FACTORIES: dict[str, Callable[[str], Any]] = {
    "dict": lambda url: psycopg.connect(url, row_factory=dict_row),
    "scalar": lambda url: psycopg.connect(url, row_factory=scalar_row),
    "raw": lambda url: psycopg.connect(url, cursor_factory=psycopg.RawCursor),
}


@pytest.mark.parametrize("connect", FACTORIES.values(), ids=FACTORIES)
async def test_row_and_cursor_factories_do_not_matter(
    connect: Callable[[str], Any], database: str, postgres_server: PostgreSQL
) -> None:
    def body(connection: Any) -> str:
        connection.execute("insert into effects values ('a', 'x')")
        return "stored"

    def store(url: str, token: str) -> str:
        return run_transaction(lambda: connect(url), body, operation_id="a", token=token)

    with Proxy(*postgres_server.address) as proxy:
        proxy.when(b"COMMIT", Fault.CUT_AFTER)
        assert store(proxy.through(database), "mine") == "stored"
    with pytest.raises(AlreadyStoredError):
        store(database, "mine")
    with pytest.raises(DuplicateEventError):
        store(database, "another")
    assert await effects(database) == 1


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize(
    ("row_factory", "text_factory"),
    [(_as_dict, str), (lambda _, row: row[0], str), (sqlite3.Row, bytes)],
)
def test_row_factories_of_sqlite_do_not_matter(
    file: str, row_factory: Any, text_factory: Any
) -> None:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(file)
        connection.row_factory = row_factory
        connection.text_factory = text_factory
        return connection

    assert run_transaction(connect, lambda _: "stored", operation_id="a", token="mine") == "stored"
    with pytest.raises(AlreadyStoredError):
        run_transaction(connect, lambda _: "stored", operation_id="a", token="mine")
    with pytest.raises(DuplicateEventError):
        run_transaction(connect, lambda _: "stored", operation_id="a")


def test_a_field_for_the_log_is_no_token(file: str) -> None:
    def store() -> str:
        return run_transaction(
            lambda: sqlite3.connect(file),
            lambda _: "stored",
            operation_id="a",
            context={"transaction_id": "req-1"},
        )

    assert store() == "stored"
    with pytest.raises(DuplicateEventError):
        store()


def test_what_sqlite_refuses_at_commit_is_an_answer(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(tmp_path / "test.db")
        connection.execute("pragma foreign_keys = on")
        return connection

    setup = connect()
    setup.execute("create table car (id primary key)")
    setup.execute("create table loan (car references car deferrable initially deferred)")
    setup.close()
    create_operations_table(connect)
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        run_transaction(
            connect, lambda c: c.execute("insert into loan values ('none')"), operation_id="a"
        )


async def test_an_unknown_outcome_gives_the_token_to_ask_with(
    database: str, postgres_server: PostgreSQL
) -> None:
    recorder = Recorder()
    with Proxy(*postgres_server.address) as proxy:
        engine = Psycopg(proxy.through(database))
        proxy.when(b"COMMIT", Fault.CUT_AFTER)
        with pytest.raises(OutcomeUnknownError) as caught:
            await engine.store("a", before=proxy.refuse, max_wait=0.1, observer=recorder)
    assert [fact.committed for fact in recorder.of(CommitResolved)] == [None]
    with pytest.raises(AlreadyStoredError):
        await Psycopg(database).store("a", token=caught.value.token)


async def test_a_call_cancelled_during_commit_says_that_the_outcome_is_unknown(
    database: str, postgres_server: PostgreSQL
) -> None:
    recorder = Recorder()
    with Proxy(*postgres_server.address) as proxy:
        engine = Asyncpg(proxy.through(database))
        rule = proxy.when(b"COMMIT", Fault.HANG_AFTER)
        storing = asyncio.ensure_future(engine.store("a", token="mine", observer=recorder))
        await asyncio.to_thread(wait_until, lambda: rule.fired == 1, timedelta(seconds=10))
        storing.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await storing
    assert "run_transaction with token='mine' finds out" in caught.value.__notes__[0]
    assert [fact.committed for fact in recorder.of(CommitResolved)] == [None]


async def test_find_is_not_believed_while_a_lost_session_of_another_role_may_commit(
    database: str, postgres_server: PostgreSQL
) -> None:
    connection = await asyncpg.connect(database)
    await connection.execute("drop role if exists clerk")
    await connection.execute("create role clerk")
    await connection.execute("grant all on all tables in schema public to clerk")
    await connection.close()

    with Proxy(*postgres_server.address) as proxy:
        proxy.when(b"COMMIT", Fault.HANG_BEFORE)

        async def connect() -> Any:
            connection = await asyncpg.connect(proxy.through(database), command_timeout=0.5)
            await connection.execute("set role clerk")
            return connection

        async def body(connection: Any) -> str:
            await connection.execute("insert into effects values ('a', 'x')")
            return "stored"

        async def find(connection: Any) -> bool:
            return bool(await connection.fetchval("select 1 from effects where operation = 'a'"))

        with pytest.raises(OutcomeUnknownError):
            await run_transaction(connect, body, operation_id="a", find=find)
    assert await effects(database) == 0  # it was held up for ever; run again, it might be two


async def test_behind_a_pooler_no_session_is_ended_and_none_is_surely_gone(database: str) -> None:
    """A pooler gives pids of its own, which may be somebody else's on the server."""

    class BehindPooler(AsyncpgDriver):
        def session(self, connection: Any) -> int:
            return super().session(connection) + 100_000

    innocent, ours = await asyncpg.connect(database), await asyncpg.connect(database)
    try:
        driver = BehindPooler()
        assert await follow_async(driver.fence(ours, innocent.get_server_pid())) is False
        assert await innocent.fetchval("select 1") == 1
        assert await follow_async(AsyncpgDriver().fence(ours, 4_000_000)) is True
    finally:
        await innocent.close()
        await ours.close()


def test_a_psycopg_connection_inside_a_transaction_is_refused(database: str) -> None:
    def connect() -> Any:
        connection = psycopg.connect(database)
        connection.execute("set statement_timeout = '5s'")
        return connection

    with pytest.raises(ConfigurationError, match="inside a transaction already"):
        run_transaction(connect, lambda _: None, operation_id="a")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has autocommit since Python 3.12")
def test_autocommit_off_on_sqlite_does_not_matter(file: str) -> None:
    connect = functools.partial(sqlite3.connect, file, autocommit=False)
    assert run_transaction(connect, lambda _: "stored", operation_id="a") == "stored"


async def test_a_body_may_be_an_object_with_an_async_call(database: str) -> None:
    class Body:
        async def __call__(self, connection: Any) -> str:
            await connection.execute("insert into effects values ('a', 'x')")
            return "stored"

    assert (
        await run_transaction(lambda: asyncpg.connect(database), Body(), operation_id="a")
        == "stored"
    )
