"""What real drivers raise when a real PostgreSQL refuses, aborts, ends or dies."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import asyncpg
import psycopg
import pytest

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
    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> "ByPsycopg":
        return cls(await psycopg.AsyncConnection.connect(url, autocommit=True))

    async def run(self, statement: str) -> Any:
        cursor = await self._connection.execute(statement.encode())
        return (await cursor.fetchone() or [None])[0] if cursor.description else None

    async def close(self) -> None:
        await self._connection.close()


Open = Callable[[str], Awaitable[Session]]
LOST = (True, "CONNECTION_ERROR")
drivers = pytest.mark.parametrize(
    "connect", [ByAsyncpg.open, ByPsycopg.open], ids=["asyncpg", "psycopg"]
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
async def test_what_a_server_raises_is_known_by_its_code(
    connect: Open, postgres_database: str
) -> None:
    raising = "do $$ begin raise exception '{}' using errcode = '{}'; end $$"
    async with sessions(connect, postgres_database, 1) as (session,):
        await session.run("create table t (id int primary key)")
        await session.run("insert into t values (1)")
        for statement, answer in (
            (raising.format("conflicts", "OC000"), (True, CONFLICT, "OC000")),
            (raising.format("schema has been updated", "OC001"), (True, CONFLICT, "OC001")),
            (raising.format("conflicts (OC000)", "40001"), (True, CONFLICT, "40001")),
            (raising.format("no such luck", "P0001"), (False, "UNKNOWN_ERROR", "P0001")),
            ("insert into t values (1)", (False, "UNIQUE_VIOLATION", "23505")),
            ("selec 1", (False, "UNKNOWN_ERROR", "42601")),
        ):
            assert classify_dsql_error(await error_of(session.run(statement))) == answer


async def working(session: Session, watch: Session) -> "asyncio.Task[Exception]":
    """Let a session work until it is ended; another one sees that it does."""
    pid = await session.run("select pg_backend_pid()")
    task = asyncio.create_task(error_of(session.run("select pg_sleep(60)")))
    busy = f"select count(*) from pg_stat_activity where pid = {pid} and state = 'active'"
    while not await watch.run(busy):
        pass
    return task


@drivers
async def test_a_session_that_was_ended_is_a_lost_connection_and_stays_one(
    connect: Open, postgres_database: str
) -> None:
    async with sessions(connect, postgres_database, 3) as (busy, idle, administrator):
        mine = await administrator.run("select pg_backend_pid()")
        task = await working(busy, administrator)
        ended = f"from pg_stat_activity where datname = current_database() and pid <> {mine}"
        await administrator.run(f"select count(pg_terminate_backend(pid, 5000)) {ended}")
        errors = [await task, await error_of(idle.run("select 1"))]
        errors.append(await error_of(idle.run("select 1")))
    # Some drivers see the code of the server, others only that it hung up.
    for is_retryable, error_type, sqlstate in map(classify_dsql_error, errors):
        assert (is_retryable, error_type) == LOST
        assert sqlstate in ("57P01", "08003", None)


@drivers
async def test_a_port_at_which_no_server_listens_is_a_lost_connection(connect: Open) -> None:
    error = await error_of(connect(f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"))
    assert classify_dsql_error(error) == (*LOST, None)


async def test_a_server_that_dies_is_a_lost_connection() -> None:
    with PostgreSQL() as server:
        async with (
            sessions(ByAsyncpg.open, server.url, 2) as first,
            sessions(ByPsycopg.open, server.url, 2) as second,
        ):
            pairs = (first, second)
            tasks = [await working(busy, idle) for busy, idle in pairs]
            server.kill()
            errors = [await task for task in tasks]
            errors += [await error_of(idle.run("select 1")) for _, idle in pairs]
    assert [classify_dsql_error(error)[:2] for error in errors] == [LOST] * 4


async def test_a_full_server_is_not_called_again_as_if_the_connection_were_lost() -> None:
    few = {"max_connections": "2", "superuser_reserved_connections": "0"}
    with PostgreSQL(options=few) as server:
        async with sessions(ByAsyncpg.open, server.url, 2):
            for connect in (ByAsyncpg.open, ByPsycopg.open):
                error = await error_of(connect(server.url))
                assert classify_dsql_error(error)[:2] == (False, "UNKNOWN_ERROR")
                found = DEFAULT_CLASSIFIER.classify(error)
                assert (found.verdict, found.error_type) == (
                    Verdict.TRANSIENT,
                    "RESOURCES_EXHAUSTED",
                )


@drivers
async def test_a_stranger_is_refused_for_good(connect: Open, postgres_database: str) -> None:
    error = await error_of(connect(postgres_database.replace("postgres@", "stranger@")))
    found = DEFAULT_CLASSIFIER.classify(error)
    assert (found.verdict, found.error_type) == (Verdict.PERMANENT, "CREDENTIALS_REFUSED")
