"""What sweeps add up for good: the keys under which a store keeps it.

A key is the name of a metric, and its labels behind it: `name|label=value|label=value`. The label
`collection` comes last, because a collection may be named by anything. The group has no other keys:

    retry_job_documents_requeued_total|collection=C                documents whose event was sent
    retry_job_documents_skipped_backoff_total|collection=C         stuck, the next attempt not due
    retry_job_documents_skipped_total|reason=R|collection=C        left alone, by reason (`Skip`)
    retry_job_documents_max_retries_exceeded_total|collection=C    given up
    retry_job_runs_total|status=success                            runs without an error
    retry_job_runs_total|status=failure
    retry_job_errors_total|error_type=E                            by the name of the exception
    retry_job_duration_seconds_bucket|le=L                         runs that took L or less
    retry_job_duration_seconds_sum
    retry_job_duration_seconds_count

Buckets are cumulative, as Prometheus has them, and `le=+Inf` is one of them.
"""

from collections.abc import Iterable
from enum import StrEnum

GROUP = "retry_job"

REQUEUED = "retry_job_documents_requeued_total"
SKIPPED_BACKOFF = "retry_job_documents_skipped_backoff_total"
SKIPPED = "retry_job_documents_skipped_total"
GIVEN_UP = "retry_job_documents_max_retries_exceeded_total"
RUNS = "retry_job_runs_total"
ERRORS = "retry_job_errors_total"
DURATION = "retry_job_duration_seconds"
DURATION_BUCKETS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)

_COLLECTION = "collection"
_OF_COLLECTION = (REQUEUED, SKIPPED_BACKOFF, GIVEN_UP)


class Status(StrEnum):
    """How a run ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    """Something went wrong; what could be done was done."""


class Skip(StrEnum):
    """Why a document that a sweep met was left alone. The words are labels of a metric."""

    BACKOFF = "backoff"
    IN_HAND = "in_hand"
    """A worker may be at it, or its event waits in a queue."""
    LEASED = "leased"
    CLAIMED = "claimed"
    YOUNG = "young"
    SCHEDULED = "scheduled"
    SETTLED = "settled"
    """Processed or given up since it was found, or not ours."""
    CHANGED = "changed"
    """Somebody else changed it first."""
    HELD_BACK = "held_back"
    """Over the limit of this run; it comes next time."""
    DOWN = "down"
    """What its event depends on is down."""
    CIRCUIT = "circuit"
    """Too many leases are over at once to believe that their workers died."""
    REFUSED = "refused"
    """Its store does not let it be changed, or the bus does not take its event."""


KNOWN_ERRORS = ("ConfigurationError", "ConnectionError", "TimeoutError", "ValidationError")
"""Counted from 0; others appear when they first happen."""


def key(name: str, **labels: str) -> str:
    """Write the key of a total.

    >>> key(SKIPPED, collection="messages", reason="down")
    'retry_job_documents_skipped_total|reason=down|collection=messages'
    """
    ordered = sorted(labels, key=lambda label: (label == _COLLECTION, label))
    return "|".join((name, *(f"{label}={labels[label]}" for label in ordered)))


def parsed(text: str) -> tuple[str, dict[str, str]]:
    """Read a key: the name, and the labels.

    >>> parsed("retry_job_documents_skipped_total|reason=down|collection=a|b=c")
    ('retry_job_documents_skipped_total', {'reason': 'down', 'collection': 'a|b=c'})
    """
    name, _, rest = text.partition("|")
    labels: dict[str, str] = {}
    while rest:
        label, _, value = rest.partition("=")
        if label == _COLLECTION:
            labels[label] = value
            break
        labels[label], _, rest = value.partition("|")
    return name, labels


def from_zero(collections: Iterable[str]) -> dict[str, float]:
    """Give every total that is known beforehand, at 0: `increase()` sees the first of each."""
    names = list(collections)
    zeros = [
        *(
            key(name, collection=of)
            for name in (REQUEUED, SKIPPED_BACKOFF, GIVEN_UP)
            for of in names
        ),
        *(key(SKIPPED, reason=reason, collection=of) for reason in Skip for of in names),
        *(key(RUNS, status=status) for status in Status),
        *(key(ERRORS, error_type=each) for each in KNOWN_ERRORS),
        *run_took(0.0),
    ]
    return dict.fromkeys(zeros, 0.0)


def run_took(seconds: float) -> dict[str, float]:
    """Give what one run adds to the histogram of durations."""
    return {
        **{
            key(f"{DURATION}_bucket", le=_bound(bound)): float(seconds <= bound)
            for bound in (*DURATION_BUCKETS, float("inf"))
        },
        f"{DURATION}_sum": seconds,
        f"{DURATION}_count": 1.0,
    }


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)
