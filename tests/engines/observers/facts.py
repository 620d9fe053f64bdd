"""One fact of each kind, as services, calls and sweeps tell them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from headway import DocumentNotFoundError
from headway.facts import (
    CollectionFailed,
    CollectionLeftAlone,
    CollectionSwept,
    CommitResolved,
    DeadLettered,
    DocumentGivenUp,
    DocumentsHeldBack,
    DocumentsMissing,
    DocumentsNotRebuilt,
    DocumentsRefused,
    DocumentsSkipped,
    DuplicatesRecognised,
    EventFact,
    EventHandedOn,
    EventParked,
    EventRecovered,
    EventRetryScheduled,
    EventsRouted,
    EventsUnrouted,
    EventsWaiting,
    FloodChanged,
    GaveUp,
    HealthChanged,
    LeaseLost,
    Processed,
    ReachChanged,
    Reached,
    Recovered,
    RetryScheduled,
    Skip,
    Status,
    SuspectBegun,
    SweepEnded,
)
from headway.retrying import DEFAULT_CLASSIFIER, Failure, Reason

AT = datetime(2026, 1, 17, 5, tzinfo=UTC)
KEY = "chunking-123-456-789"
NAMES: dict[str, Any] = {
    "service": "chunking",
    "event_type": "JSONParsed",
    "idempotency_key": KEY,
}
TYPE: dict[str, Any] = {"service": "chunking", "event_type": "JSONParsed"}
MISSING = DocumentNotFoundError("messages", ["123"])


def failure(error: Exception, attempt: int = 3) -> Failure:
    return Failure(
        attempt=attempt, at=AT, error=error, diagnosis=DEFAULT_CLASSIFIER.classify(error)
    )


def scheduled(error: Exception = MISSING, **changed: Any) -> EventRetryScheduled:
    fields = {
        **NAMES,
        "failure": failure(error),
        "retry": 3,
        "max_retries": 8,
        "delay": timedelta(seconds=1),
        "age": timedelta(seconds=2),
        "ttl": timedelta(minutes=30),
        "handler": "chunk",
    }
    return EventRetryScheduled(**fields | changed)


def recovered(retries: int = 3) -> EventRecovered:
    return EventRecovered(
        **NAMES, retries=retries, elapsed=timedelta(seconds=1.75), handler="chunk"
    )


def dead(reason: Reason = Reason.MAX_ATTEMPTS_EXCEEDED, **changed: Any) -> DeadLettered:
    fields = {
        **NAMES,
        "letter_id": "a1b2",
        "failed_queue": "chunking.failed",
        "reason": reason,
        "attempts": 9,
        "error_type": "DocumentNotFoundError",
        "last_error": "DocumentNotFoundError: not found in messages: 123",
        "elapsed": timedelta(seconds=64),
        "failure": failure(MISSING, 9),
        "handler": "chunk",
    }
    return DeadLettered(**fields | changed)


PROCESSED = Processed(**TYPE, seconds=(0.25, 0.5, 2.0))
DUPLICATES = DuplicatesRecognised(**NAMES, count=2, why="done")
SUPERSEDED = DuplicatesRecognised(**NAMES, count=2, why="superseded")
SKIPPED = DocumentsSkipped(**TYPE, count=4)
NOT_THERE = DocumentsMissing(
    **TYPE, handler="chunk", collection="messages", ids=("m-1", "m-2", "m-3", "m-4")
)
PARKED = EventParked(**NAMES, rule="postgresql.connection")
HANDED_ON = EventHandedOn(**TYPE, version="1", awaited=("2",), error="ValueError: x")
DOWN = HealthChanged(**TYPE, rule="postgresql.connection", down=True, last_error="refused")
BACK = HealthChanged(**TYPE, rule="postgresql.connection", down=False, lasted=timedelta(seconds=90))
PAUSED = FloodChanged(**TYPE, paused=True, permanent=20, handled=23)
GOES_ON = FloodChanged(**TYPE, paused=False)
SUSPECT = SuspectBegun(**NAMES, returns=2)
LEASE_LOST = LeaseLost(**NAMES)
WAITING = EventsWaiting(
    **TYPE, collection="messages", document="m-1", holder="host:7", until=AT, count=12
)
TAKEN_OVER = replace(WAITING, is_gone=True)
UNROUTED = EventsUnrouted(**TYPE, meant="JSONParse", where="amqp://broker")
ROUTED = EventsRouted(**TYPE, count=12)
REACHED = Reached(service="chunking", at=AT)
SILENT = ReachChanged(service="chunking", silent=True, lasted=timedelta(seconds=31))
REACHED_AGAIN = ReachChanged(service="chunking", silent=False, lasted=timedelta(seconds=45))

ALL: tuple[EventFact, ...] = (
    PROCESSED,
    DUPLICATES,
    SKIPPED,
    NOT_THERE,
    scheduled(),
    recovered(),
    dead(),
    PARKED,
    HANDED_ON,
    DOWN,
    PAUSED,
    SUSPECT,
    LEASE_LOST,
    WAITING,
    UNROUTED,
    ROUTED,
    REACHED,
    SILENT,
    REACHED_AGAIN,
)


# Calls of a function


class DriverError(Exception):
    """An error of a driver, with the code of the server."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


CONFLICT = DriverError("40001", "change conflicts with another transaction (OC000)")
CONTEXT = {
    "event_id": "e-1",
    "event_type": "payment",
    "event_name": "PaymentReceived",
    "transaction_id": "t-1",
}


def call_retried(error: Exception, context: Mapping[str, str] = CONTEXT) -> RetryScheduled:
    return RetryScheduled(
        call="store",
        failure=failure(error, 2),
        max_attempts=5,
        delay=timedelta(seconds=0.2341),
        context=context,
    )


def call_gave_up(
    error: Exception, reason: Reason, attempt: int = 5, context: Mapping[str, str] = CONTEXT
) -> GaveUp:
    return GaveUp(
        call="store",
        failure=failure(error, attempt),
        max_attempts=5,
        reason=reason,
        context=context,
    )


def call_recovered(context: Mapping[str, str] = CONTEXT) -> Recovered:
    return Recovered(call="store", attempts=2, elapsed=timedelta(seconds=1), context=context)


def commit_resolved(*, committed: bool, context: Mapping[str, str] = CONTEXT) -> CommitResolved:
    return CommitResolved(call="store", operation_id="op-1", committed=committed, context=context)


# Sweeps


def swept(status: Status, **fields: Any) -> SweepEnded:
    collection = CollectionSwept(
        collection="messages", requeued=3, skipped={Skip.BACKOFF: 2}, given_up=1, **fields
    )
    return SweepEnded(
        status=status, ended=AT, elapsed=timedelta(seconds=1.5), collections=(collection,)
    )


def held_back(count: int, *, after_downtime: bool) -> DocumentsHeldBack:
    return DocumentsHeldBack(
        collection="messages", count=count, limit=30, after_downtime=after_downtime
    )


def left_alone(probes: int) -> CollectionLeftAlone:
    return CollectionLeftAlone(
        collection="chunks",
        service="embedding",
        event_type="ChunksPrepared",
        probes=probes,
        pause=timedelta(minutes=15),
    )


def broken_off(error: Exception, collection: str = "chunks", claims: int = 0) -> CollectionFailed:
    return CollectionFailed(collection=collection, error=error, claims=claims)


GIVEN_UP = DocumentGivenUp(
    collection="archives",
    document_id="a-1",
    attempts=3,
    last_attempt_time="2029-12-31T00:00:00Z",
    last_error="ValueError: no boundary",
)
REFUSED = DocumentsRefused(
    collection="chunks",
    error_type="WriteError",
    count=7,
    first_ids=("c-1", "c-2"),
    first_error="Document failed validation",
)
NOT_TAKEN = DocumentsRefused(
    collection="chunks",
    error_type="UnsendableError",
    count=1,
    first_ids=("c-1",),
    first_error="it has 200000 bytes",
    by_bus=True,
)
NOT_REBUILT = DocumentsNotRebuilt(
    collection="archives",
    event_type="ArchiveIngested",
    error_type="KeyError",
    count=7,
    first_id="a-1",
    first_error="'source'",
)
