"""Metrics and error reports of your own, beside those of Headway."""

from headway.adapters.noop.metrics import NoOpMetricsCollector
from headway.assembly.metrics import create_metrics_collector
from headway.assembly.reporting import error_reporter
from headway.core.metric import Metric

__all__ = [
    "Metric",
    "NoOpMetricsCollector",
    "create_metrics_collector",
    "error_reporter",
]
