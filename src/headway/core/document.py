"""The fields by which documents take part in recovery, and what an attempt does to them."""

from datetime import datetime

from headway.core.travel import instant
from headway.core.writes import Document

STATUS = "status"
PROCESSED = "processed"
FAILED = "failed"
ATTEMPT_COUNT = "attemptCount"
LAST_ATTEMPT_TIME = "lastAttemptTime"
LAST_OPERATION = "lastOperation"


def begun(document: Document, operation: str, now: datetime) -> Document | None:
    """Give a document as it is once an operation has begun to work on it; None: it is processed.

    An operation counts once, however often it is begun.
    """
    if document.get(STATUS) == PROCESSED:
        return None
    counted = document.get(ATTEMPT_COUNT)
    if not isinstance(counted, int):  # somebody else wrote it, or nobody has yet
        counted = 0
    if document.get(LAST_OPERATION) != operation:
        counted += 1
    return {
        **document,
        ATTEMPT_COUNT: counted,
        LAST_OPERATION: operation,
        LAST_ATTEMPT_TIME: instant(now),
    }
