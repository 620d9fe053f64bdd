"""Make prometheus-client's collectors from the catalogue's words."""

from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import REGISTRY

from headway.core.metric import Metric


def counter(metric: Metric, registry: CollectorRegistry = REGISTRY) -> Counter:
    return Counter(metric.name, metric.meaning, metric.labels, registry=registry)


def gauge(
    metric: Metric,
    registry: CollectorRegistry = REGISTRY,
    *,
    of_many: Literal["livemax", "livemin"] = "livemax",
) -> Gauge:
    """Make a gauge; of several processes that share their numbers, only the living ones count."""
    return Gauge(
        metric.name, metric.meaning, metric.labels, registry=registry, multiprocess_mode=of_many
    )


def histogram(metric: Metric, registry: CollectorRegistry = REGISTRY) -> Histogram:
    return Histogram(
        metric.name, metric.meaning, metric.labels, buckets=metric.buckets, registry=registry
    )
