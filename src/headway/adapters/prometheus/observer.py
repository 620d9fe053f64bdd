"""Count facts in prometheus-client's registry, under the names of the catalogue."""

from prometheus_client import CollectorRegistry
from prometheus_client.registry import REGISTRY

from headway.adapters.prometheus.events import EventMetrics
from headway.adapters.prometheus.families import counter, histogram
from headway.core import metrics
from headway.core.facts import CommitResolved, Fact, GaveUp, Recovered, RetryScheduled
from headway.core.sweep_facts import SweepFact

_OUTCOMES = {True: "committed", False: "not_committed", None: "unknown"}


class PrometheusObserver:
    """Holds one collector for each metric that facts feed."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._retries = counter(metrics.RETRIES, registry)
        self._recovered = counter(metrics.RECOVERED, registry)
        self._gave_up = counter(metrics.GAVE_UP, registry)
        self._wait = histogram(metrics.RETRY_WAIT, registry)
        self._resolved = counter(metrics.COMMITS_RESOLVED, registry)
        self._events = EventMetrics(registry)

    def tell(self, fact: Fact) -> None:
        match fact:
            case RetryScheduled():
                self._retries.labels(fact.call, fact.failure.diagnosis.error_type).inc()
                self._wait.labels(fact.call).observe(fact.delay.total_seconds())
            case Recovered():
                self._recovered.labels(fact.call).inc()
            case GaveUp():
                error_type = fact.failure.diagnosis.error_type
                self._gave_up.labels(fact.call, error_type, str(fact.reason)).inc()
            case CommitResolved():
                self._resolved.labels(fact.call, _OUTCOMES[fact.committed]).inc()
            case _:
                # What sweeps count is read from the store, which has it from all of them.
                if not isinstance(fact, SweepFact):
                    self._events.tell(fact)
