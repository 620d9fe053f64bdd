"""The ledger's own metrics: the catalogue, and the counters made from it.

Events are counted after their fate is settled, so an attempt that was rolled back counts nothing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from prometheus_client import CollectorRegistry

from headway.metrics import Metric
from headway.prometheus import PrometheusObserver, counter, histogram

Outcome = Literal["stored", "duplicate", "invalid", "exhausted", "unknown", "failed"]

EVENTS = Metric(
    "ledger_events_total",
    "counter",
    ("event_type", "outcome"),
    "Events by what became of them: stored (again asked for by its sender included), duplicate, "
    "invalid, exhausted (not stored, may be sent again), unknown (whether stored) or failed.",
)
REQUEST_SECONDS = Metric(
    "ledger_request_seconds",
    "histogram",
    ("form",),
    "Time from the first byte of a request to its answer; form is single or bulk.",
    (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)
CATALOGUE = (EVENTS, REQUEST_SECONDS)


class LedgerMetrics:
    """All collectors of one service, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.facts = PrometheusObserver(registry)
        self._events = counter(EVENTS, registry)
        self._seconds = histogram(REQUEST_SECONDS, registry)

    def settled(self, event_type: str, outcome: Outcome) -> None:
        self._events.labels(event_type, outcome).inc()

    @contextmanager
    def timed(self, form: Literal["single", "bulk"]) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds.labels(form).observe(time.perf_counter() - began)
