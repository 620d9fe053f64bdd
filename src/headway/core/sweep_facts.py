"""What a sweeper announces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from headway.core.sweep_totals import Skip, Status
from headway.core.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionSwept:
    """What one run did with one collection."""

    collection: str
    requeued: int = 0
    """Documents whose event was sent, and is stored."""
    skipped: Mapping[Skip, int] = field(default_factory=dict)
    given_up: int = 0
    held_back: int = 0
    """Due, and left for later runs: over the limit, or over the cap after a downtime."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """By the name of the exception."""
    broken_by: str = ""
    """What kept it from being swept to its end, in words; empty: nothing did."""
    tally: Tally | None = None
    """What is stuck after the run. None: unknown, because the store could not be asked."""

    @property
    def stuck(self) -> int | None:
        """Count what is stuck, without what is only new; None: unknown."""
        return None if self.tally is None else self.tally.stuck


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnded:
    """A run came to its end; everything that it did is stored."""

    status: Status
    ended: datetime
    elapsed: timedelta
    collections: tuple[CollectionSwept, ...]
    errors: Mapping[str, int] = field(default_factory=dict)
    """Of the run itself, besides those of its collections."""
    totals: Mapping[str, float] | None = None
    """All that sweeps ever added up (`core.sweep_totals`). None: the store could not be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsRequeued:
    """Events of stuck documents were sent again, and are stored."""

    collection: str
    document_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentGivenUp:
    """A document has had all its attempts; a person has to decide."""

    collection: str
    document_id: str
    attempts: int
    last_attempt_time: str
    """As the document has it; empty if it has none."""
    last_error: str
    """Type and message of the last one that is known; empty if none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsNotRebuilt:
    """No event that its own consumer accepts could be made from stuck documents."""

    collection: str
    event_type: str
    error_type: str
    count: int
    first_id: str
    first_error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsRefused:
    """Stuck documents that cannot be swept; the others are."""

    collection: str
    error_type: str
    count: int
    first_ids: tuple[str, ...]
    """Of those that were refused for this, the first."""
    first_error: str
    by_bus: bool = False
    """True: the bus does not take their events. False: their store does not let them be changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsHeldBack:
    """More documents of a collection are due than a run may send."""

    collection: str
    count: int
    limit: int
    after_downtime: bool
    """True: no sweep had ended for long, so the first ones are careful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasesDoubted:
    """So many leases are over at once that heartbeats must have failed, and not workers."""

    collection: str
    over: int
    """Leases that ended since the last run should have been."""
    leased: int
    """Leases that run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionLeftAlone:
    """Events of a collection's type are paused, or what they depend on is down.

    Nothing is sent but a probe, now and then: else those who wait for an event would wait for ever.
    """

    collection: str
    service: str
    event_type: str
    probes: int
    """Documents that were sent all the same: one, or none."""
    pause: timedelta
    """Until the next probe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionFailed:
    """The sweep of one collection was broken off; the others go on."""

    collection: str
    error: Exception
    claims: int = 0
    """Of documents whose events may be sent or not: a later run sends them again."""


SweepFact = (
    SweepEnded
    | DocumentsRequeued
    | DocumentGivenUp
    | DocumentsNotRebuilt
    | DocumentsRefused
    | DocumentsHeldBack
    | LeasesDoubted
    | CollectionLeftAlone
    | CollectionFailed
)
