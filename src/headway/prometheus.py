"""Metrics for Prometheus; needs the extra `prometheus`."""

from headway.adapters.prometheus.families import counter, histogram
from headway.adapters.prometheus.observer import PrometheusObserver
from headway.assembly.metrics_server import served

__all__ = ["PrometheusObserver", "counter", "histogram", "served"]
