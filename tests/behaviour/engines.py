"""One way to use every driver in a test: an unkeyed append and a counter, stored together.

An upsert would hide that something was applied twice; these two effects do not.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any, Protocol

import asyncpg
import psycopg

from headway import create_operations_table, run_transaction

TABLES = (
    "create table effects (operation text not null, note text)",
    "create table counters (name text primary key, total int not null)",
    "insert into counters values ('all', 0)",
)


Before = Callable[[], None] | None


class Engine(Protocol):
    """A database reached by one driver."""

    url: str

    def connect(self) -> Any: ...

    async def prepare(self) -> None: ...

    async def execute(self, *statements: str) -> None: ...

    async def store(self, operation: str, *, before: Before = None, **options: Any) -> Any:
        """Store one operation; `before` runs inside the callback, before its statements."""
        ...

    async def rows(self, statement: str) -> list[tuple[Any, ...]]: ...


class Postgres:
    """What the drivers of PostgreSQL share: tables are made and read by asyncpg."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.timeout = 60.0

    async def execute(self, *statements: str) -> None:
        connection = await asyncpg.connect(self.url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    async def prepare(self) -> None:
        await self.execute(*TABLES)
        await create_operations_table(lambda: asyncpg.connect(self.url))

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.url)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()


def statements(operation: str) -> tuple[str, str]:
    return (
        f"insert into effects values ('{operation}', 'x')",
        "update counters set total = total + 1 where name = 'all'",
    )


class Asynchronous(Postgres):
    def connect(self) -> Any:
        raise NotImplementedError

    async def store(self, operation: str, *, before: Before = None, **options: Any) -> Any:
        async def callback(connection: Any) -> str:
            if before:
                before()
            for statement in statements(operation):
                await connection.execute(statement)
            return f"stored {operation}"

        return await run_transaction(self.connect, callback, operation_id=operation, **options)


class Asyncpg(Asynchronous):
    def connect(self) -> Any:
        return asyncpg.connect(self.url, command_timeout=self.timeout)


class PsycopgAsync(Asynchronous):
    def connect(self) -> Any:
        return psycopg.AsyncConnection.connect(self.url)

    async def prepare(self) -> None:
        await super().prepare()
        await create_operations_table(self.connect)  # again, by this driver: it must not mind


class Synchronous:
    """What the two sync drivers share: the work is done in a thread."""

    def connect(self) -> Any:
        raise NotImplementedError

    async def store(self, operation: str, *, before: Before = None, **options: Any) -> Any:
        return await asyncio.to_thread(self.store_now, operation, before=before, **options)

    def store_now(self, operation: str, *, before: Before = None, **options: Any) -> Any:
        def callback(connection: Any) -> str:
            if before:
                before()
            for statement in statements(operation):
                connection.execute(statement)
            return f"stored {operation}"

        return run_transaction(self.connect, callback, operation_id=operation, **options)


class Psycopg(Synchronous, Postgres):
    def connect(self) -> Any:
        return psycopg.connect(self.url)

    async def prepare(self) -> None:
        await super().prepare()
        create_operations_table(self.connect)


class Sqlite(Synchronous):
    def __init__(self, path: str) -> None:
        self.url = path

    def connect(self) -> Any:
        return sqlite3.connect(self.url, timeout=0)

    async def execute(self, *statements: str) -> None:
        with closing(self.connect()) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    async def prepare(self) -> None:
        await self.execute("pragma journal_mode = wal", *TABLES)
        create_operations_table(self.connect)
        create_operations_table(self.connect)

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection:
            return list(connection.execute(statement))


KINDS: dict[str, Callable[[str], Engine]] = {
    "asyncpg": Asyncpg,
    "psycopg": Psycopg,
    "psycopg-async": PsycopgAsync,
}
