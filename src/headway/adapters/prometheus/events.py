"""Count the facts of events, under the names of the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from prometheus_client import CollectorRegistry, Counter, Histogram

from headway.adapters.prometheus.families import counter, gauge, histogram
from headway.core import metrics
from headway.core.action import Reason
from headway.core.facts import (
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

_REASONS = {reason: str(reason) for reason in Reason} | {
    Reason.MAX_ATTEMPTS_EXCEEDED: "max_attempts"
}
_MOST_ATTEMPTS = 20


class EventMetrics:
    """Holds one collector for each metric that events feed."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._success = counter(metrics.EVENT_RETRY_SUCCESS, registry)
        self._failures = counter(metrics.FAILURES, registry)
        self._duplicates = counter(metrics.EVENT_DUPLICATES, registry)
        self._parked = counter(metrics.EVENT_PARKED, registry)
        self._handed_on = counter(metrics.EVENT_HANDED_ON, registry)
        self._down = gauge(metrics.DEPENDENCY_DOWN, registry)
        self._latency = histogram(metrics.EVENT_RETRY_LATENCY, registry)
        self._attempts = histogram(metrics.EVENT_RETRY_ATTEMPT_COUNT, registry)
        self._dlq = counter(metrics.EVENT_RETRY_DLQ, registry)
        self._processed = counter(metrics.EVENTS_PROCESSED, registry)
        self._duration = histogram(metrics.PROCESSING_DURATION, registry)
        self._skipped = counter(metrics.DOCUMENTS_SKIPPED, registry)
        self._paused = gauge(metrics.EVENT_TYPE_PAUSED, registry)
        self._suspects = counter(metrics.EVENT_SUSPECTS, registry)
        self._leases = counter(metrics.EVENT_LEASES_LOST, registry)
        self._reached = gauge(metrics.WORKER_REACHED, registry, of_many="livemin")
        self._services: dict[str, _OfService] = {}

    def tell(self, fact: EventFact) -> None:  # noqa: C901, PLR0912 (a case for each fact)
        of = self._services.get(fact.service) or self._met(fact.service)
        match fact:
            case Processed():
                of.processed.inc(len(fact.seconds))
                observe = of.duration.observe
                for seconds in fact.seconds:
                    observe(seconds)
            case DuplicatesRecognised():
                self._duplicates.labels(fact.service, fact.why).inc(fact.count)
            case DocumentsSkipped():
                of.skipped.inc(fact.count)
            case DocumentsMissing():
                pass  # the log names them
            case EventRetryScheduled():
                pass  # retries are counted when their event ends, one way or the other
            case EventRecovered():
                self._success.labels(fact.service, _bounded(fact.retries)).inc()
                of.latency.observe(fact.elapsed.total_seconds())
                of.attempts.observe(fact.retries)
            case DeadLettered():
                of.dlq[fact.reason].inc()
                self._failures.labels(fact.service, fact.error_type).inc()
                of.attempts.observe(max(fact.attempts - 1, 0))
            case EventParked():
                self._parked.labels(fact.service, fact.rule).inc()
            case EventHandedOn():
                self._handed_on.labels(fact.service, fact.version).inc()
            case HealthChanged():
                self._down.labels(fact.service, fact.event_type, fact.rule).set(fact.down)
            case FloodChanged():
                self._paused.labels(fact.service, fact.event_type).set(fact.paused)
            case SuspectBegun():
                of.suspects.inc()
            case LeaseLost():
                of.leases.inc()
            case EventsUnrouted() | EventsRouted():
                pass  # the engine counts them at each scrape
            case EventsWaiting():
                pass  # the log names the document; what waits is counted as leased
            case Reached():
                self._reached.labels(fact.service).set(fact.at.timestamp())
            case ReachChanged():
                pass  # the gauge of its times says the same
            case _:
                assert_never(fact)

    def _met(self, service: str) -> "_OfService":
        of = _OfService(
            processed=self._processed.labels(service),
            duration=self._duration.labels(service),
            latency=self._latency.labels(service),
            attempts=self._attempts.labels(service),
            skipped=self._skipped.labels(service),
            suspects=self._suspects.labels(service),
            leases=self._leases.labels(service),
            dlq={reason: self._dlq.labels(service, word) for reason, word in _REASONS.items()},
        )
        return self._services.setdefault(service, of)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfService:
    """What is counted for one service, found once.

    So the busy path looks nothing up, and every count begins at 0: `increase()` sees the first.
    """

    processed: Counter
    duration: Histogram
    latency: Histogram
    attempts: Histogram
    skipped: Counter
    suspects: Counter
    leases: Counter
    dlq: Mapping[Reason, Counter]


def _bounded(retries: int) -> str:
    return str(retries) if retries <= _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS}+"
