"""The metrics of service authors, as METRICS_BACKEND says."""

from collections.abc import Mapping
from functools import cache

from headway.adapters.noop.metrics import NoOpMetricsCollector
from headway.assembly.settings import environment
from headway.core.errors import ConfigurationError
from headway.core.extras import cure
from headway.ports.metrics import Metrics

SETTING = "METRICS_BACKEND"
BACKENDS = ("prometheus", "prometheus_pushgateway", "noop")


def create_metrics_collector() -> Metrics:
    """Give what counts and measures for a service: `increment`, `observe` and `gauge`.

    METRICS_BACKEND is `prometheus`, for prometheus-client's own registry, or `noop`, the default.
    With `prometheus_pushgateway` it is the registry too: only sweeps push, and only their own.
    """
    return NoOpMetricsCollector() if metrics_backend(environment()) == "noop" else _prometheus()


def metrics_backend(settings: Mapping[str, str]) -> str:
    """Read METRICS_BACKEND."""
    given = settings.get(SETTING, "").strip() or "noop"
    if given.lower() not in BACKENDS:
        raise ConfigurationError(f"Invalid {SETTING}={given!r}. Use one of: {', '.join(BACKENDS)}.")
    return given.lower()


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
