"""MongoDB as a store beside a bus: effects and records, in the same transactions.

What has to be sent is written into the record and stays there until somebody says that it arrived.
Nothing here knows of deliveries: who lost one is recognised by the record of whoever was quicker.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from headway.adapters.mongodb.candidates import MongoCandidates
from headway.adapters.mongodb.commit import Commits
from headway.adapters.mongodb.connecting import Link
from headway.adapters.mongodb.desk import MongoDesk
from headway.adapters.mongodb.documents import MongoDocuments
from headway.adapters.mongodb.ends import MongoEnds
from headway.adapters.mongodb.history import MongoHistory
from headway.adapters.mongodb.leases import MongoLeases
from headway.adapters.mongodb.naming import DONE
from headway.adapters.mongodb.records import MongoDecisions, MongoRecords
from headway.adapters.mongodb.totals import MongoTotals
from headway.adapters.mongodb.transactions import Transactions
from headway.ports.clock import Clock
from headway.ports.commit import Finish, Unit
from headway.ports.documents import Documents
from headway.ports.engine import Sweeping


class MongoStore:
    """Documents, done-records and commits of one worker process."""

    def __init__(self, url: str, clock: Clock, name: str) -> None:
        self._url = url
        self._clock = clock
        self._name = name
        self._link = link = Link(url, name)
        transactions = Transactions(link, clock)
        self._decisions = MongoDecisions(link)
        self.records = MongoRecords(link, transactions)
        self.documents = MongoDocuments(link, transactions)
        self.ends = MongoEnds(link)
        self.history = MongoHistory(link)
        self._commits = Commits(link, transactions, self.records)
        self.sweeping: Sweeping | None = Sweeping(
            candidates=MongoCandidates(link, transactions),
            desk=MongoDesk(link, transactions),
            leases=MongoLeases(link, clock),
            totals=MongoTotals(link),
        )

    async def commit(self, units: Sequence[Unit]) -> Sequence[Finish]:
        """Store effects and records, each unit as one; nothing is sent and nothing is settled."""
        return await self._commits.commit(units)

    async def requeued(self, failed_queue: str, letter_id: str, to: str | None) -> None:
        await self._decisions.requeued(failed_queue, letter_id, to)

    async def purged(self, failed_queue: str, letter_ids: Sequence[str]) -> None:
        await self._decisions.purged(failed_queue, letter_ids)

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[Documents]:
        """Give the documents over a client of their own, which belongs to another event loop."""
        link = Link(self._url, self._name)
        try:
            yield MongoDocuments(link, Transactions(link, self._clock))
        finally:
            await link.close()

    async def open(self) -> None:
        """Make sure of the server and of our collections; what cannot be used is refused here."""
        await self._link.ours(DONE)

    async def close(self) -> None:
        """Let go of the server."""
        await self._link.close()


def mongodb_store(url: str, clock: Clock, *, name: str = "HEADWAY_STORE") -> MongoStore:
    """Give the store of one worker process; it connects when it is first needed.

    `name` is the setting that `url` comes from, for messages about it.
    """
    return MongoStore(url, clock, name)
