"""Show what sweeps do: at a Pushgateway, on /metrics, or both."""

import asyncio
import importlib.util
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from headway.adapters.system.clock import CLOCK
from headway.assembly.serving import Metrics
from headway.core.errors import ConfigurationError
from headway.core.extras import cure
from headway.core.gateway_url import GatewayUrl
from headway.core.sweep_figures import SweepFigures
from headway.ports.gateway import Gateway
from headway.runtime.sweep_view import SweepView

_PATIENCE = timedelta(seconds=4)
"""What the store may take for a scrape: less than a scrape may."""
_LOG = logging.getLogger("headway")


def pushgateway(url: GatewayUrl) -> Gateway:
    """Give the Pushgateway that PUSHGATEWAY_URL names."""
    _check_prometheus("METRICS_BACKEND='prometheus_pushgateway'")
    from headway.adapters.prometheus.pushing import Pushgateway  # noqa: PLC0415 (an extra)

    return Pushgateway(url)


@asynccontextmanager
async def shown(
    view: SweepView, *, gateway: Gateway | None = None, metrics: Metrics | None = None
) -> AsyncIterator[None]:
    """Show figures while the block lasts; push after each run with `view.push(gateway)`."""
    with ExitStack() as stack:
        if metrics is not None:
            _serve(stack, view, metrics)
        if gateway is not None:
            await view.begin(gateway)
        yield


def _serve(stack: ExitStack, view: SweepView, metrics: Metrics) -> None:
    _check_prometheus("--metrics-port")
    from prometheus_client.registry import REGISTRY  # noqa: PLC0415 (an extra)

    from headway.adapters.prometheus.sweeps import SweepCollector  # noqa: PLC0415 (an extra)
    from headway.assembly.metrics_server import answered, served  # noqa: PLC0415 (an extra)

    loop = asyncio.get_running_loop()

    def look() -> SweepFigures:
        try:
            return answered(loop, view.answer(_PATIENCE))
        except TimeoutError:  # the loop itself did not get to it
            return view.answer_at_once()

    def health() -> tuple[HTTPStatus, dict[str, Any]]:
        last = view.last_run
        ago = None if last is None else round((CLOCK.now() - last).total_seconds(), 1)
        # One that waits for its turn to lead is as well as one that sweeps.
        return HTTPStatus.OK, {"status": "ok", "last_run_seconds": ago}

    at = served(REGISTRY, SweepCollector(look), health, host=metrics.host, port=metrics.port)
    port = stack.enter_context(at)
    _LOG.info("Metrics are at http://%s:%d/metrics", metrics.host, port)


def _check_prometheus(what: str) -> None:
    if importlib.util.find_spec("prometheus_client") is None:
        raise ConfigurationError(f"{what} needs prometheus-client: {cure('prometheus')}")
