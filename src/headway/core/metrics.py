"""The catalogue of metrics: every name, its kind, labels and meaning. The docs include it verbatim.

Labels are bounded: kinds, names of functions and reason codes, never ids or messages.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as it appears in an exposition."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()


RETRIES = Metric(
    "headway_retries_total",
    "counter",
    ("call", "error_type"),
    "Attempts that failed and were followed by another one.",
)
RECOVERED = Metric(
    "headway_recovered_total",
    "counter",
    ("call",),
    "Calls that succeeded after at least one failed attempt.",
)
GAVE_UP = Metric(
    "headway_gave_up_total",
    "counter",
    ("call", "error_type", "reason"),
    "Calls that failed for good.",
)
RETRY_WAIT = Metric(
    "headway_retry_wait_seconds",
    "histogram",
    ("call",),
    "How long callers waited before the next attempt.",
    (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0),
)
COMMITS_RESOLVED = Metric(
    "headway_commits_resolved_total",
    "counter",
    ("call", "outcome"),
    "Commits whose answer was lost; outcome: committed, not_committed, or still unknown.",
)

CATALOGUE = (RETRIES, RECOVERED, GAVE_UP, RETRY_WAIT, COMMITS_RESOLVED)
