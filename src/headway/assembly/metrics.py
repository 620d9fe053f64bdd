"""The metrics of service authors, as METRICS_BACKEND says."""

from functools import cache

from headway.adapters.noop.metrics import NoOpMetricsCollector
from headway.assembly.settings import environment
from headway.core.errors import ConfigurationError
from headway.core.extras import cure
from headway.ports.metrics import Metrics

SETTING = "METRICS_BACKEND"


def create_metrics_collector() -> Metrics:
    """Give what counts and measures for a service: `increment`, `observe` and `gauge`.

    METRICS_BACKEND is `prometheus`, for prometheus-client's own registry, or `noop`, the default.
    With `prometheus_pushgateway` it is the registry too: only sweeps push, and only their own.
    """
    given = environment().get(SETTING, "").strip()
    match given.lower():
        case "" | "noop":
            return NoOpMetricsCollector()
        case "prometheus" | "prometheus_pushgateway":
            return _prometheus()
    raise ConfigurationError(
        f"{SETTING}={given!r} is not accepted: use prometheus, prometheus_pushgateway, or noop"
    )


@cache  # a name can be registered once in a process
def _prometheus() -> Metrics:
    try:
        from headway.adapters.prometheus.collector import (  # noqa: PLC0415 (an extra)
            PrometheusMetricsCollector,
        )
    except ImportError:
        raise ConfigurationError(
            f"{SETTING}={environment().get(SETTING)} needs prometheus-client: {cure('prometheus')}"
        ) from None
    return PrometheusMetricsCollector()
