"""The consumer's own metrics: the catalogue, and what counts by it.

Everything is counted after it is settled, so work that was given back counts nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import quote, unquote

from headway.facts import (
    GapGivenUp,
    KeyCleared,
    LookNotScheduled,
    LookScheduled,
    ResultFailed,
    ResultHeld,
    ResultReleased,
    ResultsPassed,
    SequenceFact,
    StaleDropped,
    TurnLost,
)
from headway.metrics import Metric
from headway.order import Why

ADDED = Metric(
    "uptime_backlog_added_total",
    "counter",
    (),
    "Results that came before their turn and were held.",
)
REMOVED = Metric(
    "uptime_backlog_removed_total",
    "counter",
    (),
    "Held results that were processed, or dropped because they were processed already or their "
    "subscription is gone. Added less removed is what is held now.",
)
TASK_SCHEDULED = Metric(
    "uptime_backlog_task_scheduled_total",
    "counter",
    (),
    "Looks scheduled because a subscription began to hold results.",
)
CLEARED = Metric(
    "uptime_backlog_cleared_total",
    "counter",
    (),
    "Backlogs of a subscription that were drained to the last result.",
)
TIMEOUT = Metric(
    "uptime_backlog_timeout_total",
    "counter",
    (),
    "Waits for a missing result that were given up after the last look, or because a held result "
    "was too old.",
)
TIMEOUT_RESULTS = Metric(
    "uptime_backlog_timeout_results_total",
    "counter",
    (),
    "Results that were held when such a wait was given up.",
)
CIRCUIT_BREAKER = Metric(
    "uptime_backlog_circuit_breaker_total",
    "counter",
    (),
    "Waits that ended because too many results were held behind a gap.",
)
RESCHEDULING = Metric(
    "uptime_backlog_rescheduling_total",
    "counter",
    (),
    "Looks after which another one was scheduled.",
)
SCHEDULE_FAILED = Metric(
    "uptime_backlog_schedule_failed_total",
    "counter",
    (),
    "Looks that could not be scheduled; the index of due subscriptions finds them.",
)
PASSED = Metric(
    "uptime_backlog_passed_total",
    "counter",
    (),
    "Results processed without their order because the engine of sequences was away.",
)
FAILED = Metric(
    "uptime_backlog_failed_total",
    "counter",
    (),
    "Attempts to apply a result that failed; it is held, and tried again.",
)
LEASES_LOST = Metric(
    "uptime_backlog_lease_lost_total",
    "counter",
    (),
    "Results whose worker took longer than its lease.",
)
MISSING = Metric(
    "uptime_result_processer_num_missing_check",
    "histogram",
    (),
    "Misses that were made up before one result.",
    (1, 2, 3, 5, 10, 20, 50, 100, 1000),
)
RETRACTED = Metric(
    "uptime_misses_retracted_total",
    "counter",
    (),
    "Misses that were taken back because the result came late.",
)
PROCESSED = Metric(
    "uptime_results_processed_total",
    "counter",
    ("status", "region"),
    "Results that were applied, those that came late included.",
)
DUPLICATES = Metric(
    "uptime_results_duplicate_total", "counter", (), "Results that were applied before."
)
DROPPED = Metric(
    "uptime_results_dropped_total",
    "counter",
    ("reason",),
    "Results that were not processed: malformed, subscription_not_found, disallowed_by_robots, "
    "shadow_region, detector_not_found, detector_disabled or feature_disabled.",
)
CATALOGUE = (
    ADDED,
    REMOVED,
    TASK_SCHEDULED,
    CLEARED,
    TIMEOUT,
    TIMEOUT_RESULTS,
    CIRCUIT_BREAKER,
    RESCHEDULING,
    SCHEDULE_FAILED,
    PASSED,
    FAILED,
    LEASES_LOST,
    MISSING,
    RETRACTED,
    PROCESSED,
    DUPLICATES,
    DROPPED,
)


Labels = Mapping[str, str]
_PLAIN = " !#$&'()*+/:;<=>?@[]^`{|}~"
"""What may stand in a label as it is: all but the comma between two of them."""


class Counting(Protocol):
    """Counts by the catalogue."""

    def add(self, metric: Metric, number: float = 1, labels: Labels | None = None) -> None: ...

    def observe(self, metric: Metric, value: float) -> None: ...


class Tally:
    """Counts in this process, for those who ask it and for a store that adds up all processes.

    A counter with labels is kept by the name and the labels, a histogram as its sum, its count,
    and one number for each bucket.
    """

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}

    def add(self, metric: Metric, number: float = 1, labels: Labels | None = None) -> None:
        self._add(_name(metric, labels), number)

    def observe(self, metric: Metric, value: float) -> None:
        bucket = next((each for each in metric.buckets if value <= each), None)
        if bucket is not None:
            self._add(bucket_name(metric, bucket), 1)
        self._add(f"{metric.name}_count", 1)
        self._add(f"{metric.name}_sum", value)

    def get(self, metric: Metric, labels: Labels | None = None) -> float:
        return self._counts.get(_name(metric, labels), 0)

    def taken(self) -> dict[str, float]:
        """Give what was counted since this was last asked."""
        counts, self._counts = self._counts, {}
        return counts

    def give_back(self, counts: Mapping[str, float]) -> None:
        """Take back what was taken and could not be stored."""
        for name, number in counts.items():
            self._add(name, number)

    def _add(self, name: str, number: float) -> None:
        self._counts[name] = self._counts.get(name, 0) + number


class BacklogWatcher:
    """Counts what the resequencer tells."""

    def __init__(self, counts: Counting) -> None:
        self._counts = counts

    def tell(self, fact: SequenceFact) -> None:
        for metric, number in counted(fact):
            self._counts.add(metric, number)


def counted(fact: SequenceFact) -> Sequence[tuple[Metric, float]]:  # noqa: C901, PLR0911 (a line for each)
    """Say what a fact adds to which counter."""
    match fact:
        case ResultHeld():
            return [(ADDED, 1)]
        case ResultReleased():
            return [(REMOVED, 1)]
        case StaleDropped():
            return [(REMOVED, fact.number)]
        case KeyCleared():
            return [(CLEARED, 1)]
        case GapGivenUp(why=Why.BREAKER):
            return [(CIRCUIT_BREAKER, 1)]
        case GapGivenUp(why=Why.TIMEOUT | Why.TOO_OLD):
            return [(TIMEOUT, 1), (TIMEOUT_RESULTS, fact.held)]
        case LookScheduled():
            return [(RESCHEDULING if fact.again else TASK_SCHEDULED, 1)]
        case LookNotScheduled():
            return [(SCHEDULE_FAILED, 1)]
        case ResultsPassed():
            return [(PASSED, fact.number)]
        case ResultFailed():
            return [(FAILED, 1)]
        case TurnLost():
            return [(LEASES_LOST, 1)]
        case _:
            return []  # a gap that a person gave up, and what the log says


def rates(counts: Mapping[str, float]) -> dict[str, float | None]:
    """Give what the document derives: size, success rate, timeout rate. None: nothing to divide.

    >>> rates({"uptime_backlog_added_total": 4, "uptime_backlog_removed_total": 3})["size"]
    1
    """

    def get(metric: Metric) -> float:
        return counts.get(metric.name, 0)

    def share(part: Metric, whole: Metric) -> float | None:
        return get(part) / get(whole) if get(whole) else None

    return {
        "size": get(ADDED) - get(REMOVED),
        "success_rate": share(CLEARED, TASK_SCHEDULED),
        "timeout_rate": share(TIMEOUT, ADDED),
        "circuit_breaker_rate": share(CIRCUIT_BREAKER, ADDED),
    }


def bucket_name(metric: Metric, bucket: float) -> str:
    """Name the values up to a bound, and above the bound before it."""
    return f"{metric.name}_bucket{{le={bucket:g}}}"


def _name(metric: Metric, labels: Labels | None) -> str:
    if not labels:
        return metric.name
    pairs = (f"{name}={quote(labels[name], safe=_PLAIN)}" for name in metric.labels)
    return metric.name + "{" + ",".join(pairs) + "}"


def labels_in(metric: Metric, name: str) -> list[str] | None:
    """Give the values of the labels in the name of a counter. None: it is of another metric."""
    if not name.startswith(metric.name + "{"):
        return None
    pairs = name[len(metric.name) + 1 : -1].split(",")
    return [unquote(pair.partition("=")[2]) for pair in pairs]
