"""Metrics for Prometheus; needs the extra `prometheus`."""

from headway.adapters.prometheus.observer import PrometheusObserver

__all__ = ["PrometheusObserver"]
