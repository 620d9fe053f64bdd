"""The history of what operators changed: entries are appended, and never altered."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from headway.core.document import moment
from headway.core.writes import Document

KEPT = 20_000
"""Entries that an engine keeps, the newest: each change has two."""


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class History(Protocol):
    """Keeps the newest `KEPT` entries."""

    async def append(self, entry: Document) -> None:
        """Store an entry durably; its field `at` says when. The oldest beyond `KEPT` are removed.

        After a lost connection an entry may be stored twice.
        """
        ...

    async def latest(self, limit: int) -> Sequence[Document]:
        """Give the newest entries by `at`, the newest first; of one instant, the last appended.

        Reading removes nothing, however often it is done and wherever it is interrupted.
        """
        ...


def newest_first(entries: Iterable[Document]) -> list[Document]:
    """Sort entries that come with the last appended first; those of one instant stay so."""
    return sorted(entries, key=appended_at, reverse=True)


def appended_at(entry: Document) -> datetime:
    """Give the time of an entry; one without a time is older than all others."""
    return moment(entry.get("at")) or _LONG_AGO
