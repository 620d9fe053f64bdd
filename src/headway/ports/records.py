"""Done-records: how a redelivery is recognised."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Protocol

import msgspec

from headway.core.errors import KeyTakenError
from headway.core.letter import Letter
from headway.ports.bus import Message


class Ended(StrEnum):
    """How an operation ended, for this service and this generation."""

    DONE = "done"
    FAILED = "failed"
    """It has a letter."""
    DUPLICATE = "duplicate"
    """Another operation with the same idempotency key was done before."""
    SUPERSEDED = "superseded"
    """Nothing was left to do for its documents, or another operation has taken them up."""
    REQUEUED = "requeued"
    """It failed, and a person sent it again under a new generation."""
    MOVED = "moved"
    """It failed, and a person sent it to another queue: an end of its own, counted as done."""
    PURGED = "purged"
    """It failed, and a person removed its letter."""


_AFTER = "/after/"

SWALLOWS = frozenset({Ended.DONE, Ended.DUPLICATE, Ended.SUPERSEDED})
"""Ends after which another operation with the same idempotency key is a duplicate.

Work that failed was not done: whoever sends it again, corrected, means it.
"""


def is_same_or_done(found: "DoneRecord", queue: str, operation: str) -> bool:
    """Say whether a record means that an operation with its key has ended before.

    If not, the operation goes by `key_after` that record.
    """
    return found.ended in SWALLOWS or (found.queue, found.operation) == (queue, operation)


def own_end(found: "DoneRecord", record: "DoneRecord") -> "DoneRecord | None":
    """Say what is left to write for work whose key is in a record already.

    None: it is the same operation, which has ended. Another one has an end of its own, as the
    duplicate of the first.

    Raises:
        KeyTakenError: The first one failed, so this is no duplicate of it.
    """
    if (found.queue, found.operation) == (record.queue, record.operation):
        return None
    if found.ended not in SWALLOWS:
        raise KeyTakenError(record.key, found.operation)
    return msgspec.structs.replace(
        record,
        key=f"{record.key}/duplicate/{record.operation}",
        ended=Ended.DUPLICATE,
        outgoing=(),
        letter=None,
    )


def key_after(key: str, operation: str) -> str:
    """Give the key for work whose own key is taken by an operation that failed."""
    base = key.partition(_AFTER)[0]
    digest = sha256(f"{key}{operation}".encode()).hexdigest()[:16]
    return f"{base}{_AFTER}{digest}"


class DoneRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Written in the same commit as the effects; kept for as long as a redelivery may come."""

    key: str
    """The text of a DoneKey."""
    operation: str
    queue: str
    ended: Ended
    at: datetime
    outgoing: tuple[Message, ...] = ()
    """Events of this unit that have not been confirmed by the bus yet."""
    letter: Letter | None = None
    """Likewise, for a unit that failed."""
    failed_queue: str = ""


class DoneRecords(Protocol):
    """Reads the records that commits have written."""

    async def find(self, keys: Sequence[str]) -> Mapping[str, DoneRecord]:
        """Give the records that exist for these keys."""
        ...

    async def undispatched(self, before: datetime, limit: int) -> Sequence[DoneRecord]:
        """Give records written before an instant that still hold something to be sent."""
        ...

    async def dispatched(self, keys: Sequence[str]) -> None:
        """Take down that everything these records held has been confirmed."""
        ...

    async def forget(self, before: datetime, limit: int) -> int:
        """Remove records of finished work that are older than an instant; say how many."""
        ...


class Decisions(Protocol):
    """Takes down what a person decided about letters that are kept outside the store.

    A record that was decided upon holds no letter any more: nobody sends it again.
    """

    async def requeued(self, failed_queue: str, letter_id: str, to: str | None) -> None:
        """Say REQUEUED where a record says FAILED or PURGED; MOVED, if `to` is another queue.

        To be called when the event is on its way, so it goes before any other decision.
        """
        ...

    async def purged(self, failed_queue: str, letter_ids: Sequence[str]) -> None:
        """Say PURGED where a record says FAILED."""
        ...
