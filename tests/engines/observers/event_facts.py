"""One fact of each kind about events, as a chunking service would tell them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from headway import DocumentNotFoundError
from headway.facts import (
    DeadLettered,
    DocumentsMissing,
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
    HealthChanged,
    LeaseLost,
    Processed,
    ReachChanged,
    Reached,
    SuspectBegun,
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
