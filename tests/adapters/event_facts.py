"""One fact of each kind about events, as a chunking service would tell them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from headway.core.action import Reason
from headway.core.catalogue import EVERYTHING
from headway.core.errors import DocumentNotFoundError
from headway.core.facts import (
    DeadLettered,
    DocumentsSkipped,
    DuplicatesRecognised,
    EventFact,
    EventParked,
    EventRecovered,
    EventRetryScheduled,
    FloodChanged,
    HealthChanged,
    LeaseLost,
    Processed,
    ReachChanged,
    Reached,
    SuspectBegun,
)
from headway.core.failure import Failure

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
    return Failure(attempt=attempt, at=AT, error=error, diagnosis=EVERYTHING.classify(error))


def scheduled(error: Exception = MISSING, **changed: Any) -> EventRetryScheduled:
    fields = {
        **NAMES,
        "failure": failure(error),
        "retry": 3,
        "max_retries": 8,
        "delay": timedelta(seconds=1),
        "age": timedelta(seconds=2),
        "ttl": timedelta(minutes=30),
    }
    return EventRetryScheduled(**fields | changed)


def recovered(retries: int = 3) -> EventRecovered:
    return EventRecovered(**NAMES, retries=retries, elapsed=timedelta(seconds=1.75))


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
    }
    return DeadLettered(**fields | changed)


PROCESSED = Processed(**TYPE, seconds=(0.25, 0.5, 2.0))
DUPLICATES = DuplicatesRecognised(**TYPE, count=2, why="done")
SKIPPED = DocumentsSkipped(**TYPE, count=4)
PARKED = EventParked(**NAMES, rule="postgresql.connection")
DOWN = HealthChanged(**TYPE, rule="postgresql.connection", down=True, last_error="refused")
BACK = HealthChanged(**TYPE, rule="postgresql.connection", down=False, lasted=timedelta(seconds=90))
PAUSED = FloodChanged(service="chunking", paused=True, permanent=13, handled=20)
GOES_ON = FloodChanged(service="chunking", paused=False)
SUSPECT = SuspectBegun(**NAMES, returns=2)
LEASE_LOST = LeaseLost(**NAMES)
REACHED = Reached(service="chunking", at=AT)
SILENT = ReachChanged(service="chunking", silent=True, lasted=timedelta(seconds=31))
REACHED_AGAIN = ReachChanged(service="chunking", silent=False, lasted=timedelta(seconds=45))

ALL: tuple[EventFact, ...] = (
    PROCESSED,
    DUPLICATES,
    SKIPPED,
    scheduled(),
    recovered(),
    dead(),
    PARKED,
    DOWN,
    PAUSED,
    SUSPECT,
    LEASE_LOST,
    REACHED,
    SILENT,
    REACHED_AGAIN,
)
