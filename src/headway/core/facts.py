"""What the runtime announces: facts, told after they are settled.

Logs, metrics and tests are all made from the same facts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from headway.core.action import Reason
from headway.core.failure import Failure
from headway.core.sweep_facts import SweepFact


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled:
    """An attempt failed and another one follows after `delay`."""

    call: str
    failure: Failure
    max_attempts: int
    delay: timedelta
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The call succeeded after at least one attempt had failed."""

    call: str
    attempts: int
    elapsed: timedelta
    """From the first failure to the success."""
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaveUp:
    """The call failed for good; its last exception goes to the caller."""

    call: str
    failure: Failure
    max_attempts: int
    reason: Reason
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResolved:
    """A connection was lost during COMMIT, and the database has been asked what became of it."""

    call: str
    operation_id: str
    committed: bool | None
    """None: nobody could be asked, or the caller was cancelled; it stays unknown."""
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """Events were handled and committed, in one group."""

    service: str
    event_type: str
    seconds: tuple[float, ...]
    """How long the handler took, for each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicatesRecognised:
    """Events had been done before, and were settled without running their handler again."""

    service: str
    event_type: str
    count: int
    why: str
    """`done`: the same event; `superseded`: nothing was left to do for its documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsSkipped:
    """Documents of `insert_new` were there before."""

    service: str
    event_type: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRetryScheduled:
    """An attempt at an event failed, and another one follows after `delay`."""

    service: str
    event_type: str
    idempotency_key: str
    failure: Failure
    retry: int
    """The number of the retry that follows, on the schedule for this kind of failure."""
    max_retries: int
    delay: timedelta
    age: timedelta
    """Since the first attempt began, without the time spent parked."""
    ttl: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecovered:
    """An event was processed after at least one attempt had failed."""

    service: str
    event_type: str
    idempotency_key: str
    retries: int
    elapsed: timedelta
    """From the beginning of the first attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered:
    """An event ended as a letter."""

    service: str
    event_type: str
    """Empty where the bytes are no event."""
    idempotency_key: str
    letter_id: str
    failed_queue: str
    reason: Reason
    attempts: int
    error_type: str
    last_error: str
    elapsed: timedelta
    failure: Failure | None = None
    """The last one, where an attempt was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventParked:
    """An event waits for a dependency that is down; nothing is counted against it."""

    service: str
    event_type: str
    idempotency_key: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChanged:
    """A dependency went down or came back."""

    service: str
    event_type: str
    rule: str
    down: bool
    last_error: str = ""
    lasted: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodChanged:
    """A service paused because most of its events end as letters, or goes on again."""

    service: str
    paused: bool
    permanent: int = 0
    handled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectBegun:
    """An event whose worker died twice is run alone."""

    service: str
    event_type: str
    idempotency_key: str
    returns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost:
    """Work was finished too late: it belonged to somebody else, and nothing of it took effect."""

    service: str
    event_type: str
    idempotency_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """It was seen that what is published reaches this worker."""

    service: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachChanged:
    """For too long nothing could reach this worker, or it can again."""

    service: str
    silent: bool
    lasted: timedelta


EventFact = (
    Processed
    | DuplicatesRecognised
    | DocumentsSkipped
    | EventRetryScheduled
    | EventRecovered
    | DeadLettered
    | EventParked
    | HealthChanged
    | FloodChanged
    | SuspectBegun
    | LeaseLost
    | Reached
    | ReachChanged
)
CallFact = RetryScheduled | Recovered | GaveUp | CommitResolved
Fact = CallFact | EventFact | SweepFact
