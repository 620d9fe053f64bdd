"""The fields by which documents take part in recovery, and how they are read.

Other programs write documents too, and older ones: every field may be missing, or hold something
that was never meant. What cannot be read counts as not there.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

STATUS = "status"
ATTEMPT_COUNT = "attemptCount"
LAST_ATTEMPT_TIME = "lastAttemptTime"
LAST_OPERATION = "lastOperation"
LAST_FAILED_AT = "lastFailedAt"
LAST_ERROR = "lastError"
PERMANENT_FAILURE = "permanentFailure"
"""Its event failed permanently: `rule`, by which, and `version`, of the service that ran it."""
CREATED_AT = "createdAt"

LEASE_TOKEN = "leaseToken"  # noqa: S105 (the name of a field)
LEASE_UNTIL = "leaseUntil"
"""A worker has it in hand, until then."""
WAITING = "waiting"
"""Instead of a worker's token: it is in nobody's hands, and its event waits for a retry."""

CLAIM_TOKEN = "claimToken"  # noqa: S105 (the name of a field)
CLAIM_UNTIL = "claimUntil"
CLAIM_BEFORE = "claimBefore"
"""A sweeper has counted an attempt and is publishing its event; and what it found before."""

SWEEP_GENERATION = "sweepGeneration"
"""How often sweepers have claimed it. It only rises: a reset does not lower it."""
RETRY_AT = "retryAt"
"""Not before then, as a person decided."""

TIMES = (LAST_ATTEMPT_TIME, LAST_FAILED_AT, CREATED_AT, LEASE_UNTIL, CLAIM_UNTIL, RETRY_AT)

FARTHEST_AHEAD = timedelta(hours=1)
"""Clocks differ by less. A time beyond this is no time at all: nobody waits for the year 3000."""

FARTHEST_CLAIM = timedelta(days=1)
"""Nobody claims or leases a document for longer, unless its lifecycle says so."""

FARTHEST_SCHEDULE = timedelta(days=366)
"""Nobody schedules an attempt for later; a time beyond this was never meant."""

MOST = 1_000_000
"""Nobody tries more often; a number above it is read as this."""


def count(document: Mapping[str, Any], field: str) -> int:
    """Read a number of times; whatever is none, is 0."""
    value = document.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return 0
    return int(min(value, MOST))


def moment(value: object) -> datetime | None:
    """Read an instant. A time without a zone is UTC, which is what stores mean by it."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    try:
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    except OverflowError:  # the year 1 in a zone where it is still the year 0
        return None


def past(value: object, now: datetime) -> datetime | None:
    """Read an instant at which something happened; one that is still far ahead is none."""
    read = moment(value)
    return None if read is None or read > now + FARTHEST_AHEAD else read
