"""The ledger in one SQLite file."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar

from headway import (
    AlreadyStoredError,
    ConfigurationError,
    create_operations_table,
    retry_on_oc000,
    run_transaction,
)
from headway.facts import Observer
from headway.systems.ledger import rows
from headway.systems.ledger.decoding import RefusedEventError
from headway.systems.ledger.entities import apply
from headway.systems.ledger.events import Event
from headway.systems.ledger.reading import Reading

T = TypeVar("T")

# A thread also waits out the pauses between attempts, so there are more than could ever write.
_THREADS = 64
_START_SECONDS = 10.0

_SCHEMA = """
create table if not exists ledger_events (
    event_id text primary key,
    event_type text not null,
    entity_id text not null,
    amount_cents integer not null,
    token text not null,
    body text not null,
    stored_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) without rowid;
create table if not exists ledger_entities (
    entity_id text primary key,
    kind text not null,
    provisional integer not null,
    opening_cents integer not null,
    movements integer not null,
    moved_cents integer not null
) without rowid;
"""
_ENTITY = rows.ENTITY.format("?")
_ADD_EVENT = f"insert into ledger_events ({', '.join(rows.EVENT_COLUMNS)}) values (?,?,?,?,?,?)"  # noqa: S608 (column names of our own)
_PUT_ENTITY = (
    f"insert or replace into ledger_entities ({', '.join(rows.ENTITY_COLUMNS)}) "  # noqa: S608 (column names of our own)
    "values (?,?,?,?,?,?)"
)


class SqliteStore(Reading):
    """Every call runs in a thread, on a connection of its own."""

    marks = ("?", "?")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ledger")

    async def prepare(self) -> None:
        if not self._path.absolute().parent.is_dir():
            raise ConfigurationError(
                f"LEDGER_DATABASE_URL names the file {str(self._path)!r} in a folder that does not "
                "exist: make the folder, or name another"
            )
        await self._in_thread(self._make_tables)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        # When the last connection closes, SQLite folds its log into the file and turns everybody
        # away meanwhile; one that stays open spares every event this. It must have read something.
        with closing(await self._in_thread(lambda: self._connect(_START_SECONDS))) as connection:
            await self._in_thread(connection.execute("pragma schema_version").fetchall)
            yield

    async def append(
        self,
        event: Event,
        *,
        token: str,
        attempts: int,
        context: Mapping[str, str],
        observer: Observer,
    ) -> bool:
        def body(connection: sqlite3.Connection) -> None:
            row = connection.execute(_ENTITY, (event.entity_id,)).fetchone()
            after = apply(rows.entity_from(row), event)
            connection.execute(_ADD_EVENT, rows.event_row(event, token))
            connection.execute(_PUT_ENTITY, rows.entity_row(after))

        def store() -> bool:
            try:
                run_transaction(
                    self._connect,
                    body,
                    operation_id=event.event_id,
                    token=token,
                    stop_after=attempts,
                    name="store_event",
                    context=context,
                    expected=RefusedEventError,
                    observer=observer,
                )
            except AlreadyStoredError:
                return False
            return True

        return await self._in_thread(store)

    async def _read(self, statement: str, *values: object) -> Sequence[Any]:
        def read() -> list[Any]:
            with closing(self._connect()) as connection:
                return connection.execute(statement, values).fetchall()

        return await self._in_thread(read)

    def _connect(self, wait: float = 0.0) -> sqlite3.Connection:
        # Nobody waits for the write lock: who does not get it has met a conflict, and the retry
        # rule spreads the next attempts out.
        connection = sqlite3.connect(self._path, timeout=wait, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute("pragma fullfsync = on")  # for macOS; elsewhere it does nothing
        return connection

    @retry_on_oc000()
    def _make_tables(self) -> None:
        with closing(self._connect(_START_SECONDS)) as connection:
            connection.execute("pragma journal_mode = wal")
            connection.executescript(_SCHEMA)
        create_operations_table(lambda: self._connect(_START_SECONDS))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
