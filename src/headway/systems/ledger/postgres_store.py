"""The ledger in PostgreSQL, every event in a SERIALIZABLE transaction."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from headway import AlreadyStoredError, create_operations_table, retry_on_oc000, run_transaction
from headway.facts import Observer
from headway.systems.ledger import rows
from headway.systems.ledger.decoding import RefusedEventError
from headway.systems.ledger.entities import apply
from headway.systems.ledger.events import Event
from headway.systems.ledger.reading import Reading
from headway.systems.ledger.store import Row

_CONNECT_SECONDS = 5.0
_STATEMENT_SECONDS = 15.0

# Bodies are text, not jsonb: Aurora DSQL has no such columns. Ids are ordered by their bytes in
# every database. Entity pages are left half empty, so that an update finds room beside the old row
# and leaves the index alone: a changed index page would conflict with readers of its other rows.
_SCHEMA = """
select pg_advisory_xact_lock(2029051302);
create table if not exists ledger_events (
    event_id text collate "C" primary key,
    event_type text not null,
    entity_id text not null,
    amount_cents bigint not null,
    token text not null,
    body text not null,
    stored_at timestamptz not null default now()
);
create table if not exists ledger_entities (
    entity_id text collate "C" primary key,
    kind text not null,
    provisional boolean not null,
    opening_cents bigint not null,
    movements bigint not null,
    moved_cents bigint not null
) with (fillfactor = 50);
"""

_ENTITY = rows.ENTITY.format("$1")

# Event and entity in one statement: every round trip saved is time in which nobody can conflict
# with us. An entity made by somebody else since we looked is a conflict here, not a violation.
_WRITE = f"""
with event as (
    insert into ledger_events ({", ".join(rows.EVENT_COLUMNS)}) values ($1, $2, $3, $4, $5, $6)
)
insert into ledger_entities ({", ".join(rows.ENTITY_COLUMNS)}) values ($7, $8, $9, $10, $11, $12)
on conflict (entity_id) do update set
    provisional = excluded.provisional, opening_cents = excluded.opening_cents,
    movements = excluded.movements, moved_cents = excluded.moved_cents
"""  # noqa: S608 (column names of our own)

# A guard: the planner may read a table of one page from end to end, and a SERIALIZABLE transaction
# then conflicts with every write to it, whichever row was meant.
_BY_INDEX_ONLY = {"enable_seqscan": "off", "enable_bitmapscan": "off"}


class PostgresStore(Reading):
    """Every attempt and every read has a connection of its own."""

    marks = ("$1", "$2")

    def __init__(self, url: str) -> None:
        self._url = url

    async def prepare(self) -> None:
        await self._make_tables()
        await create_operations_table(self._connect)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield  # every call connects by itself

    async def append(
        self,
        event: Event,
        *,
        token: str,
        attempts: int,
        context: Mapping[str, str],
        observer: Observer,
    ) -> bool:
        async def body(connection: Any) -> None:
            row = await connection.fetchrow(_ENTITY, event.entity_id)
            after = apply(rows.entity_from(row), event)
            await connection.execute(_WRITE, *rows.event_row(event, token), *rows.entity_row(after))

        try:
            await run_transaction(
                self._connect,
                body,
                operation_id=event.event_id,
                token=token,
                isolation="serializable",
                stop_after=attempts,
                name="store_event",
                context=context,
                expected=RefusedEventError,
                observer=observer,
            )
        except AlreadyStoredError:
            return False
        return True

    async def _read(self, statement: str, *values: object) -> Sequence[Row]:
        async with self._connected() as connection:
            found: Sequence[Row] = await connection.fetch(statement, *values)
        return [
            {
                name: value.isoformat() if hasattr(value, "isoformat") else value
                for name, value in row.items()
            }
            for row in found
        ]

    async def _connect(self) -> Any:
        return await asyncpg.connect(
            self._url,
            timeout=_CONNECT_SECONDS,
            command_timeout=_STATEMENT_SECONDS,
            server_settings={"application_name": "headway-ledger", **_BY_INDEX_ONLY},
        )

    @retry_on_oc000()
    async def _make_tables(self) -> None:
        async with self._connected() as connection:
            await connection.execute(_SCHEMA)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        connection = await self._connect()
        try:
            yield connection
            await connection.close(timeout=_CONNECT_SECONDS)
        finally:
            connection.terminate()  # does nothing to a connection that said goodbye
