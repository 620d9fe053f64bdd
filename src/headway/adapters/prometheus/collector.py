"""What service authors measure, in prometheus-client's registry."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import REGISTRY

from headway.core.errors import ConfigurationError
from headway.core.measuring import Kind, Measures

_DURATIONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_SIZES = tuple(digit * 10.0**power for power in range(6) for digit in (1, 2, 5))


class PrometheusMetricsCollector:
    """Makes a metric when its name is first used.

    Values that are observed fall into buckets of durations where the name ends in `_seconds`, else
    of sizes from 1 to 500,000; `buckets` gives others for the names in it.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        buckets: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        self._registry = registry
        self._buckets = dict(buckets or {})
        self._measures = Measures()
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()

    def increment(self, name: str, value: float = 1, tags: Mapping[str, str] | None = None) -> None:
        self._of("counter", name, value, tags).inc(value)

    def observe(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        self._of("histogram", name, value, tags).observe(value)

    def gauge(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        self._of("gauge", name, value, tags).set(value)

    def _of(self, kind: Kind, name: str, value: float, tags: Mapping[str, str] | None) -> Any:
        self._measures.check(kind, name, value, tags)
        found = self._made.get(name) or self._make(kind, name, sorted(tags or ()))
        return found.labels(**tags) if tags else found

    def _make(self, kind: Kind, name: str, labels: list[str]) -> Any:
        with self._lock:
            if name not in self._made:
                try:
                    self._made[name] = self._new(kind, name, labels)
                except ValueError as error:
                    raise ConfigurationError(
                        f"{name} cannot be measured here: {error}; give it another name"
                    ) from None
            return self._made[name]

    def _new(self, kind: Kind, name: str, labels: list[str]) -> Counter | Gauge | Histogram:
        says = f"{name}, measured by a service."
        if kind == "counter":
            return Counter(name, says, labels, registry=self._registry)
        if kind == "gauge":
            # Of several processes that share their numbers, the one that spoke last is right.
            return Gauge(
                name, says, labels, registry=self._registry, multiprocess_mode="livemostrecent"
            )
        usual = _DURATIONS if name.endswith("_seconds") else _SIZES
        buckets = self._buckets.get(name, usual)
        return Histogram(name, says, labels, registry=self._registry, buckets=buckets)
