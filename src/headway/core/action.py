"""What may become of a piece of work that failed: one of three, each with its reason."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class Reason(StrEnum):
    """Why a piece of work ended without success."""

    MAX_ATTEMPTS_EXCEEDED = "max_attempts_exceeded"
    TTL_EXCEEDED = "ttl_exceeded"
    NON_RETRYABLE = "non_retryable"
    CRASH_LOOP = "crash_loop"
    """Its worker died twice while it ran alone."""
    MALFORMED = "malformed"
    """Its bytes are no event."""
    UNROUTABLE = "unroutable"
    """Nobody here handles events of its type."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Try again at `due`."""

    due: datetime
    delay: timedelta


@dataclass(frozen=True, slots=True)
class Park:
    """Wait until the dependency is back; nothing is counted against the work."""

    why: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Stop, and keep the work where a person sees it."""

    reason: Reason


Action = RetryLater | Park | DeadLetter
