"""PostgreSQL as a store beside a bus: effects and records in its transactions.

What has to be sent is written into the record and stays there until somebody says that it arrived.
Nothing here knows of deliveries: who lost one is recognised by the record of whoever was quicker.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from headway.adapters.postgres.candidates import PostgresCandidates
from headway.adapters.postgres.commit import commit
from headway.adapters.postgres.desk import PostgresDesk
from headway.adapters.postgres.documents import PostgresDocuments
from headway.adapters.postgres.ends import PostgresEnds
from headway.adapters.postgres.history import PostgresHistory
from headway.adapters.postgres.leases import PostgresLeases
from headway.adapters.postgres.link import Link
from headway.adapters.postgres.records import PostgresRecords
from headway.adapters.postgres.schema import make_sure
from headway.adapters.postgres.totals import PostgresTotals
from headway.ports.clock import Clock
from headway.ports.commit import Finish, Unit
from headway.ports.documents import Documents
from headway.ports.engine import Sweeping


class PostgresStore:
    """Documents, done-records and commits of one worker process."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._link = Link(url, make_sure)
        self.records = PostgresRecords(self._link)
        self.documents = PostgresDocuments(self._link)
        self.ends = PostgresEnds(self._link)
        self.history = PostgresHistory(self._link)
        self.sweeping = Sweeping(
            candidates=PostgresCandidates(self._link, clock),
            desk=PostgresDesk(self._link),
            leases=PostgresLeases(self._link, clock),
            totals=PostgresTotals(self._link),
        )

    async def commit(self, units: Sequence[Unit]) -> Sequence[Finish]:
        """Store effects and records, each unit as one; nothing is sent and nothing is settled."""
        return await commit(self._link, units)

    async def requeued(self, failed_queue: str, letter_id: str, to: str | None) -> None:
        await self.records.requeued(failed_queue, letter_id, to)

    async def purged(self, failed_queue: str, letter_ids: Sequence[str]) -> None:
        await self.records.purged(failed_queue, letter_ids)

    async def open(self) -> None:
        """Make the tables if they are missing; a server that cannot be used is refused here."""
        await self._link.open()

    async def close(self) -> None:
        """Let go of all connections."""
        await self._link.close()

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[Documents]:
        """Give the documents over a connection of their own, for another event loop."""
        link = Link(self._url, connections=1)
        try:
            yield PostgresDocuments(link)
        finally:
            await link.close()


def postgres_store(url: str, clock: Clock) -> PostgresStore:
    """Give the store of one worker process; nothing is connected before it is first needed.

    Args:
        url: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, with any option that asyncpg knows
            (`sslmode`, `target_session_attrs`, ...). Behind a pooler that gives each transaction
            another session, such as PgBouncer with pool_mode=transaction, add
            `statement_cache_size=0`; without it the store refuses to start.
        clock: For waits.
    """
    return PostgresStore(url, clock)
