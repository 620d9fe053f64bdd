"""Serve /metrics, for one process or for all workers of a supervisor."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import REGISTRY

from headway.adapters.prometheus.places import PlacesCollector
from headway.assembly.retrying import CLOCK
from headway.core.errors import ConfigurationError
from headway.ports.engine import Engine
from headway.ports.places import Count

_PATIENCE = timedelta(seconds=5)


@contextmanager
def metrics_server(
    engine: Engine,
    loop: asyncio.AbstractEventLoop,
    *,
    host: str,
    port: int,
    shared: str | None = None,
) -> Iterator[int]:
    """Serve this process's metrics, or with `shared` those of all that write to that folder."""
    registry = REGISTRY
    if shared is not None:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=shared)  # type: ignore[no-untyped-call]
    places = PlacesCollector(partial(_count, engine, loop), CLOCK)
    registry.register(places)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        registry.unregister(places)
        raise ConfigurationError(
            f"--metrics-port={port} at {host} cannot be listened on: {error.strerror}; "
            "choose another, or 0 for any"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        registry.unregister(places)


def _count(engine: Engine, loop: asyncio.AbstractEventLoop) -> Count:
    asked = asyncio.run_coroutine_threadsafe(engine.places.count(), loop)
    try:
        return asked.result(_PATIENCE.total_seconds())
    except TimeoutError:
        asked.cancel()
        raise
