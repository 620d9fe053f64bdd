"""What real drivers raise when a real PostgreSQL refuses, aborts, ends or dies."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import asyncpg
import psycopg
import pytest
import sqlalchemy

from headway import classify_dsql_error
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.servers import PostgreSQL
from headway.testing.servers.loopback import free_port

pytestmark = pytest.mark.server("postgresql")

CONFLICT = "OC000_TRANSACTION_CONFLICT"


class Session(Protocol):
    async def run(self, statement: str) -> Any: ...

    async def close(self) -> None: ...


class ByAsyncpg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> "ByAsyncpg":
        return cls(await asyncpg.connect(url))

    async def run(self, statement: str) -> Any:
        return await self._connection.fetchval(statement)

    async def close(self) -> None:
        self._connection.terminate()


class ByPsycopg:
    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> "ByPsycopg":
        return cls(await asyncio.to_thread(psycopg.connect, url, autocommit=True))

    async def run(self, statement: str) -> Any:
        return await asyncio.to_thread(self._run, statement.encode())

    def _run(self, statement: bytes) -> Any:
        cursor = self._connection.execute(statement)
        return (cursor.fetchone() or [None])[0] if cursor.description else None

    async def close(self) -> None:
        self._connection.close()


class ByAsyncPsycopg:
    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> "ByAsyncPsycopg":
        return cls(await psycopg.AsyncConnection.connect(url, autocommit=True))

    async def run(self, statement: str) -> Any:
        cursor = await self._connection.execute(statement.encode())
        return (await cursor.fetchone() or [None])[0] if cursor.description else None

    async def close(self) -> None:
        await self._connection.close()


class BySqlalchemy:
    def __init__(self, engine: sqlalchemy.Engine, connection: sqlalchemy.Connection) -> None:
        self._engine = engine
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> "BySqlalchemy":
        engine = sqlalchemy.create_engine(
            url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
        )
        return cls(engine, await asyncio.to_thread(engine.connect))

    async def run(self, statement: str) -> Any:
        return await asyncio.to_thread(self._run, statement)

    def _run(self, statement: str) -> Any:
        result = self._connection.exec_driver_sql(statement)
        return result.scalar() if result.returns_rows else None

    async def close(self) -> None:
        await asyncio.to_thread(self._connection.close)
        self._engine.dispose()


Open = Callable[[str], Awaitable[Session]]

drivers = pytest.mark.parametrize(
    "connect",
    [ByAsyncpg.open, ByPsycopg.open, ByAsyncPsycopg.open, BySqlalchemy.open],
    ids=["asyncpg", "psycopg", "psycopg async", "sqlalchemy"],
)


@asynccontextmanager
async def sessions(connect: Open, url: str, count: int) -> AsyncIterator[list[Session]]:
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(count):
            session = await connect(url)
            stack.push_async_callback(session.close)
            opened.append(session)
        yield opened


async def error_of(doing: Awaitable[object]) -> Exception:
    with pytest.raises(Exception) as raised:
        await doing
    return raised.value


@drivers
async def test_write_skew_is_a_conflict_at_commit(connect: Open, postgres_database: str) -> None:
    async with sessions(connect, postgres_database, 2) as (one, other):
        await one.run("create table t (kind int, value int)")
        for session, reads, writes in ((one, 1, 2), (other, 2, 1)):
            await session.run("begin isolation level serializable")
            await session.run(f"select sum(value) from t where kind = {reads}")
            await session.run(f"insert into t values ({writes}, 1)")
        await one.run("commit")
        error = await error_of(other.run("commit"))
    assert classify_dsql_error(error) == (True, CONFLICT, "40001")


@drivers
async def test_a_deadlock_is_a_conflict(connect: Open, postgres_database: str) -> None:
    async with sessions(connect, postgres_database, 2) as (one, other):
        await one.run("create table t (id int primary key, value int)")
        await one.run("insert into t values (1, 0), (2, 0)")
        for session, row in ((one, 1), (other, 2)):
            await session.run("set deadlock_timeout = '20ms'")
            await session.run("begin")
            await session.run(f"update t set value = 1 where id = {row}")
        crossed = await asyncio.gather(
            one.run("update t set value = 2 where id = 2"),
            other.run("update t set value = 2 where id = 1"),
            return_exceptions=True,
        )
    (error,) = [result for result in crossed if isinstance(result, Exception)]
    assert classify_dsql_error(error) == (True, CONFLICT, "40P01")


@drivers
@pytest.mark.parametrize(
    ("code", "message", "answer"),
    [
        ("OC000", "change conflicts with another transaction", (True, CONFLICT, "OC000")),
        ("OC001", "schema has been updated", (True, CONFLICT, "OC001")),
        ("40001", "mutation conflicts (OC000)", (True, CONFLICT, "40001")),
        ("P0001", "no such luck", (False, "UNKNOWN_ERROR", "P0001")),
    ],
)
async def test_what_a_server_raises_is_known_by_its_code(
    connect: Open,
    postgres_database: str,
    code: str,
    message: str,
    answer: tuple[bool, str, str | None],
) -> None:
    async with sessions(connect, postgres_database, 1) as (session,):
        statement = f"raise exception '{message}' using errcode = '{code}';"
        error = await error_of(session.run(f"do $$ begin {statement} end $$"))
    assert classify_dsql_error(error) == answer


@drivers
async def test_statements_that_can_never_work_are_permanent(
    connect: Open, postgres_database: str
) -> None:
    async with sessions(connect, postgres_database, 1) as (session,):
        await session.run("create table t (id int primary key)")
        await session.run("insert into t values (1)")
        twice = await error_of(session.run("insert into t values (1)"))
        nonsense = await error_of(session.run("selec 1"))
        empty = await error_of(session.run("insert into t values (null)"))
    assert classify_dsql_error(twice) == (False, "UNIQUE_VIOLATION", "23505")
    assert classify_dsql_error(nonsense) == (False, "UNKNOWN_ERROR", "42601")
    assert classify_dsql_error(empty) == (False, "UNKNOWN_ERROR", "23502")


@drivers
async def test_a_session_that_was_ended_while_it_worked_is_a_lost_connection(
    connect: Open, postgres_database: str
) -> None:
    async with sessions(connect, postgres_database, 2) as (worker, administrator):
        pid = await worker.run("select pg_backend_pid()")
        working = asyncio.create_task(error_of(worker.run("select pg_sleep(60)")))
        busy = f"select count(*) from pg_stat_activity where pid = {pid} and state = 'active'"
        while not await administrator.run(busy):
            pass
        await administrator.run(f"select pg_terminate_backend({pid}, 5000)")
        error = await working
    # Some drivers see the code of the server, others only that it hung up.
    is_retryable, error_type, sqlstate = classify_dsql_error(error)
    assert (is_retryable, error_type) == (True, "CONNECTION_ERROR")
    assert sqlstate in ("57P01", "08003", None)


@drivers
async def test_a_session_that_was_ended_while_it_was_idle_is_a_lost_connection(
    connect: Open, postgres_database: str
) -> None:
    async with sessions(connect, postgres_database, 2) as (worker, administrator):
        pid = await worker.run("select pg_backend_pid()")
        await administrator.run(f"select pg_terminate_backend({pid}, 5000)")
        error = await error_of(worker.run("select 1"))
    assert classify_dsql_error(error)[:2] == (True, "CONNECTION_ERROR")


@pytest.mark.parametrize("connect", [ByAsyncpg.open, ByPsycopg.open, ByAsyncPsycopg.open])
async def test_a_connection_that_is_known_to_be_lost_stays_lost(
    connect: Open, postgres_database: str
) -> None:
    async with sessions(connect, postgres_database, 2) as (worker, administrator):
        pid = await worker.run("select pg_backend_pid()")
        await administrator.run(f"select pg_terminate_backend({pid}, 5000)")
        await error_of(worker.run("select 1"))
        error = await error_of(worker.run("select 1"))
    assert classify_dsql_error(error)[:2] == (True, "CONNECTION_ERROR")


@drivers
async def test_nobody_listening_is_a_lost_connection(connect: Open) -> None:
    error = await error_of(connect(f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"))
    assert classify_dsql_error(error) == (True, "CONNECTION_ERROR", None)


@drivers
async def test_a_server_that_dies_is_a_lost_connection(connect: Open) -> None:
    with PostgreSQL() as server:
        async with sessions(connect, server.url, 2) as (working, idle):
            pid = await working.run("select pg_backend_pid()")
            task = asyncio.create_task(error_of(working.run("select pg_sleep(60)")))
            busy = f"select count(*) from pg_stat_activity where pid = {pid} and state = 'active'"
            while not await idle.run(busy):
                pass
            server.kill()
            errors = [await task, await error_of(idle.run("select 1"))]
    for error in errors:
        assert classify_dsql_error(error)[:2] == (True, "CONNECTION_ERROR")


@drivers
async def test_a_full_server_is_not_called_again_as_if_the_connection_were_lost(
    connect: Open,
) -> None:
    with PostgreSQL(
        options={"max_connections": "2", "superuser_reserved_connections": "0"}
    ) as server:
        async with sessions(connect, server.url, 2):
            error = await error_of(connect(server.url))
    assert classify_dsql_error(error)[:2] == (False, "UNKNOWN_ERROR")
    diagnosis = DEFAULT_CLASSIFIER.classify(error)
    assert (diagnosis.verdict, diagnosis.error_type) == (Verdict.TRANSIENT, "RESOURCES_EXHAUSTED")


@drivers
async def test_a_stranger_is_refused_for_good(connect: Open, postgres_database: str) -> None:
    error = await error_of(connect(postgres_database.replace("postgres@", "stranger@")))
    diagnosis = DEFAULT_CLASSIFIER.classify(error)
    assert (diagnosis.verdict, diagnosis.error_type) == (Verdict.PERMANENT, "CREDENTIALS_REFUSED")
