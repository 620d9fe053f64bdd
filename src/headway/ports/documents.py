"""Documents, as a handler sees them. Writes are not here: they belong to the commit."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from headway.core.beginning import Beginning, Begun, How
from headway.core.document import LEASE_TOKEN, LEASE_UNTIL
from headway.core.lifecycle import Lifecycle, State
from headway.core.travel import instant
from headway.core.writes import Document

_LOCKED = timedelta(seconds=5)
"""Nobody knows for how long: it is asked for again after so long."""


MOST_FOUND = 1000
"""Documents that a find gives if it names no limit."""


def whole(found: Sequence[Document], collection: str, where: Mapping[str, Any]) -> None:
    """Refuse the answer to a find without a limit that leaves documents out.

    Ask for one more than `MOST_FOUND`.
    """
    if len(found) > MOST_FOUND:
        raise ValueError(
            f"{collection}: find({dict(where)!r:.80}) matches more than {MOST_FOUND:,} documents. "
            "Give limit= to say how many you want, or more fields to match."
        )


def locked(document: Document, beginning: Beginning) -> Begun:
    """Answer for a document that another session keeps locked: busy, for a few seconds.

    It names no holder: a lease is released or renewed, and this is neither.
    """
    until = instant(beginning.now + _LOCKED)
    return Begun(How.BUSY, {**document, LEASE_TOKEN: None, LEASE_UNTIL: until})


class Documents(Protocol):
    """Reads documents, and takes down that an operation has begun to work on them."""

    async def fetch(self, collection: str, ids: Sequence[str]) -> Mapping[str, Document]:
        """Give the documents that are there, by id."""
        ...

    async def find(
        self, collection: str, where: Mapping[str, Any], limit: int
    ) -> Sequence[Document]:
        """Give documents whose fields hold these values, in the order of their ids.

        The database filters, as `core.writes.matches` does. It examines the documents of the
        collection one after the other until it has found enough; an `_id` is found by its index.
        """
        ...

    async def count(self, collection: str, where: Mapping[str, Any]) -> int:
        """Count the documents whose fields hold these values, as `find` finds them.

        The database filters. It also counts where it compares as `core.writes.matches` does.
        """
        ...

    async def tally(self, lifecycle: Lifecycle) -> Mapping[State, int]:
        """Count the documents of a collection by their state, without reading them here."""
        ...

    async def begin(self, beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        """Let operations begin, each with the documents that are there, as `begun_together` says.

        Every document is decided and changed as one: of many who begin at the same time, one after
        the other does. What somebody else keeps locked for longer than a moment is busy, and holds
        up no other operation.
        """
        ...

    async def renew(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        """Prolong leases, given by document; say how many still bear their token.

        What somebody else keeps locked is left out: it holds up none of the others.
        """
        ...

    async def leave(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        """Let go of leases whose events come again: until then sweepers leave the documents alone.

        They are `WAITING`, so that whoever gets the event begins at once. Otherwise as `renew`.
        """
        ...
