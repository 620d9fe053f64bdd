"""One way to use every driver in a test: an unkeyed append and a counter, stored together.

An upsert would hide that something was applied twice; these two effects do not.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, Protocol

import asyncpg
import psycopg

from headway import create_operations_table, run_transaction

TABLES = (
    "create table effects (operation text not null, note text)",
    "create table counters (name text primary key, total int not null)",
    "insert into counters values ('all', 0)",
)


class Engine(Protocol):
    """A database reached by one driver."""

    url: str

    async def prepare(self) -> None: ...

    async def store(
        self, operation: str, *, before: Callable[[], None] | None = None, **options: Any
    ) -> Any:
        """Store one operation; `before` runs inside the body, before its statements."""
        ...

    async def rows(self, statement: str) -> list[tuple[Any, ...]]: ...


class Asyncpg:
    def __init__(self, url: str) -> None:
        self.url = url
        self.timeout = 60.0

    def connect(self) -> Any:
        return asyncpg.connect(self.url, command_timeout=self.timeout)

    async def prepare(self) -> None:
        connection = await self.connect()
        for statement in TABLES:
            await connection.execute(statement)
        await connection.close()
        await create_operations_table(self.connect)

    async def store(
        self, operation: str, *, before: Callable[[], None] | None = None, **options: Any
    ) -> Any:
        async def body(connection: Any) -> str:
            if before:
                before()
            await connection.execute("insert into effects values ($1, 'x')", operation)
            await connection.execute("update counters set total = total + 1 where name = 'all'")
            return f"stored {operation}"

        return await run_transaction(self.connect, body, operation_id=operation, **options)

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.url)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()


class PsycopgAsync:
    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self) -> Any:
        return psycopg.AsyncConnection.connect(self.url)

    async def prepare(self) -> None:
        await Asyncpg(self.url).prepare()
        await create_operations_table(self.connect)  # again, by this driver: it must not mind

    async def store(
        self, operation: str, *, before: Callable[[], None] | None = None, **options: Any
    ) -> Any:
        async def body(connection: Any) -> str:
            if before:
                before()
            await connection.execute("insert into effects values (%s, 'x')", (operation,))
            await connection.execute("update counters set total = total + 1 where name = 'all'")
            return f"stored {operation}"

        return await run_transaction(self.connect, body, operation_id=operation, **options)

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return await Asyncpg(self.url).rows(statement)


class Synchronous:
    """What the two sync drivers share: the work is done in a thread."""

    url: str
    mark = "%s"

    def connect(self) -> Any:
        raise NotImplementedError

    async def store(
        self, operation: str, *, before: Callable[[], None] | None = None, **options: Any
    ) -> Any:
        return await asyncio.to_thread(self.store_now, operation, before=before, **options)

    def store_now(
        self, operation: str, *, before: Callable[[], None] | None = None, **options: Any
    ) -> Any:
        def body(connection: Any) -> str:
            if before:
                before()
            connection.execute(f"insert into effects values ({self.mark}, 'x')", (operation,))
            connection.execute("update counters set total = total + 1 where name = 'all'")
            return f"stored {operation}"

        return run_transaction(self.connect, body, operation_id=operation, **options)


class Psycopg(Synchronous):
    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self) -> Any:
        return psycopg.connect(self.url)

    async def prepare(self) -> None:
        await Asyncpg(self.url).prepare()
        create_operations_table(self.connect)

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return await Asyncpg(self.url).rows(statement)


class Sqlite(Synchronous):
    mark = "?"

    def __init__(self, path: str) -> None:
        self.url = path

    def connect(self) -> Any:
        return sqlite3.connect(self.url, timeout=0)

    async def prepare(self) -> None:
        connection = self.connect()
        connection.execute("pragma journal_mode = wal")
        for statement in TABLES:
            connection.execute(statement)
        connection.commit()
        connection.close()
        create_operations_table(self.connect)
        create_operations_table(self.connect)

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            return list(connection.execute(statement))
        finally:
            connection.close()
