"""Documents, as a sweeper sees them.

Every change is conditional: a document that is not any more as it was when it was read stays as it
is, and is not in the answer. So two sweepers, or a sweeper and a worker, never both have their way.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

from headway.core.lifecycle import permanent_failure
from headway.core.sweep import Requeue, SweepRule, stays_failed
from headway.core.tally import Tally
from headway.core.writes import Document

__all__ = ["Candidates", "Claim", "Tally", "View", "view_of_failed"]


class View(StrEnum):
    """Documents that may be due, by what an index can tell. `judge` has the last word."""

    FAILED = "failed"
    """The last attempt failed, whenever that was, and not permanently."""
    OUTDATED = "outdated"
    """It failed permanently, by a programming error of another version than the rule's."""
    PERMANENT = "permanent"
    """It failed permanently, and no sweep takes it up (`core.sweep.stays_failed`)."""
    UNMOVED = "unmoved"
    """Pending, and no attempt began within `stuck_after`, or at a time that cannot be read."""
    LEASE_OVER = "lease over"
    """Pending, with a lease that has ended."""
    CLAIM_OVER = "claim over"
    """Claimed by a sweeper that did not come to an end."""


def view_of_failed(document: Mapping[str, Any], rule: SweepRule) -> View:
    """Say in which view a failed document is, whatever else it is in."""
    if permanent_failure(document) is None:
        return View.FAILED
    return View.PERMANENT if stays_failed(document, rule) else View.OUTDATED


@dataclass(frozen=True, slots=True)
class Claim:
    """A document as it was read, and what is to become of it."""

    document: Document
    requeue: Requeue


class Candidates(Protocol):
    """Finds what may be stuck, and claims it."""

    async def prepare(self, rules: Sequence[SweepRule]) -> None:
        """Make the indexes that the views need; safe to repeat."""
        ...

    def scan(
        self, rule: SweepRule, view: View, now: datetime, *, newest_first: bool, page: int
    ) -> AsyncIterator[Sequence[Document]]:
        """Give what is in a view, page by page, without reading what is not in it.

        By the time of the last attempt; where it is missing, at the end that is oldest; what failed
        permanently, by versions first. What changes meanwhile may be in it or not, and nothing else
        is given twice.
        """
        ...

    async def leased(self, rule: SweepRule, now: datetime, at_most: int) -> int:
        """Count pending documents whose lease runs, up to a number, without reading any others."""
        ...

    async def claim(
        self, rule: SweepRule, claims: Sequence[Claim], token: str, now: datetime, lease: timedelta
    ) -> frozenset[str]:
        """Claim those that are as they were read (`core.sweep.claimed`); give their ids."""
        ...

    async def published(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        """Let go of claims whose events are stored."""
        ...

    async def give_back(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        """Undo claims whose events were certainly not stored (`core.sweep.given_back`)."""
        ...

    async def give_up(
        self, rule: SweepRule, documents: Sequence[Document], now: datetime
    ) -> frozenset[str]:
        """Mark those that are as they were read (`core.sweep.given_up`); give their ids."""
        ...

    async def tally(self, rule: SweepRule, now: datetime) -> Tally:
        """Count what is stuck (`core.stuck.is_stuck`), given up, and failed permanently."""
        ...
