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
    idempotency_key: str = ""
    """Of the last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsSkipped:
    """Documents of `insert_new` were there before."""

    service: str
    event_type: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsMissing:
    """An event was handled, and of the documents that it is about, some are not there."""

    service: str
    event_type: str
    handler: str
    """The name of its function."""
    collection: str
    ids: tuple[str, ...]


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
    version: str = ""
    """The version of the service that ran it."""
    handler: str = ""
    """Name of the function that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecovered:
    """An event was processed after at least one attempt had failed."""

    service: str
    event_type: str
    idempotency_key: str
    retries: int
    elapsed: timedelta
    """From the beginning of the first attempt."""
    handler: str = ""
    """Name of the function that succeeded."""
    last_error: str = ""
    """Of the last failure; empty where documents were only late."""


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
    version: str = ""
    """The version of the service that gave it up."""
    handler: str = ""
    """Name of the function that failed; empty where none was called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventParked:
    """An event waits for a dependency that is down; nothing is counted against it."""

    service: str
    event_type: str
    idempotency_key: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHandedOn:
    """This version of a service cannot read an event, and leaves it to another that is alive."""

    service: str
    event_type: str
    version: str
    awaited: tuple[str, ...]
    """Versions that are alive and have not refused it."""
    error: str


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
    """Events of one type paused because most of them failed for good, or resume."""

    service: str
    event_type: str
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
    """A worker finished an event that another worker has by now; nothing of it took effect."""

    service: str
    event_type: str
    idempotency_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsUnrouted:
    """Events of a type that no service takes were published; told once a minute.

    Of a type that needs no consumer it is told once, if its name is close to one that is taken.
    """

    service: str
    """Whose handler published them; empty: a program outside of any service."""
    event_type: str
    meant: str
    """A type that some service takes and whose name is close; empty: there is none."""
    where: str = ""
    """The engine that keeps them, for a program outside of any service."""
    kept: bool = True
    """As unrouted events. False: they are dropped, because their type needs no consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsRouted:
    """Events that waited as unrouted are in the queue of a service that takes their type."""

    service: str
    event_type: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsWaiting:
    """Events wait for a document that another operation has leased; told once in a minute."""

    service: str
    event_type: str
    collection: str
    document: str
    holder: str
    """The name of the worker that has the lease."""
    until: datetime | None
    """When the lease ends unless the worker renews it."""
    count: int
    """How many events of this process wait."""
    is_gone: bool = False
    """The worker is gone: the first of the events takes the document over."""


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
    | DocumentsMissing
    | EventRetryScheduled
    | EventRecovered
    | DeadLettered
    | EventParked
    | EventHandedOn
    | HealthChanged
    | FloodChanged
    | SuspectBegun
    | LeaseLost
    | EventsUnrouted
    | EventsRouted
    | EventsWaiting
    | Reached
    | ReachChanged
)
CallFact = RetryScheduled | Recovered | GaveUp | CommitResolved
Fact = CallFact | EventFact | SweepFact
