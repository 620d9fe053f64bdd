"""Serve /metrics and /health, for one process or for all workers of a supervisor."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import REGISTRY, Collector

from headway.adapters.prometheus.places import PlacesCollector
from headway.adapters.system.clock import CLOCK
from headway.core.errors import ConfigurationError
from headway.core.metrics import WORKER_REACHED
from headway.ports import fork
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.ports.places import Depths
from headway.runtime.reach import TOO_LONG

_PATIENCE = timedelta(seconds=5)

_NO_PAGE = HTTPStatus.NOT_FOUND, {"pages": ["/metrics", "/health"]}

T = TypeVar("T")
Health = Callable[[], tuple[HTTPStatus, dict[str, Any]]]


class _Server(ThreadingMixIn, WSGIServer):
    """A scrape that takes its time keeps nobody from asking for the health."""

    daemon_threads = True

    def in_child(self) -> None:
        fork.close_in_child([self.fileno()])


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library's name)
        """Say nothing of every scrape."""


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
    places = PlacesCollector(partial(_depths, engine, loop), CLOCK)
    with served(registry, places, partial(health, registry, CLOCK), host=host, port=port) as at:
        yield at


@contextmanager
def served(
    registry: CollectorRegistry, own: Collector, health: Health, *, host: str, port: int
) -> Iterator[int]:
    """Serve a registry and one more collector, while the block lasts; give the port."""
    registry.register(own)
    try:
        server = make_server(host, port, _pages(registry, health), _Server, _Quiet)
    except OSError as error:
        registry.unregister(own)
        raise ConfigurationError(
            f"--metrics-port={port} at {host} cannot be listened on: {error.strerror}; "
            "choose another, or 0 for any"
        ) from error
    fork.own(server)
    thread = threading.Thread(target=server.serve_forever, name="headway-metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        registry.unregister(own)


def _pages(registry: CollectorRegistry, health: Health) -> Callable[..., Iterable[bytes]]:
    metrics = make_wsgi_app(registry)

    def page(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"].rstrip("/")
        if path == "/metrics":
            shown: Iterable[bytes] = metrics(environ, start_response)
            return shown
        status, words = health() if path == "/health" else _NO_PAGE
        body = json.dumps(words).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    return page


def health(registry: CollectorRegistry, clock: Clock) -> tuple[HTTPStatus, dict[str, Any]]:
    """Say whether events reach every worker: not merely that processes are there."""
    now = clock.now().timestamp()
    silent = {
        sample.labels["service"]: round(now - sample.value, 1)
        for family in registry.collect()
        if family.name == WORKER_REACHED.name
        for sample in family.samples
    }
    if not silent:
        return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "starting", "silent_seconds": {}}
    if max(silent.values()) > TOO_LONG.total_seconds():
        return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "silent", "silent_seconds": silent}
    return HTTPStatus.OK, {"status": "ok", "silent_seconds": silent}


def _depths(engine: Engine, loop: asyncio.AbstractEventLoop) -> Depths:
    return answered(loop, engine.places.depths())


def answered(loop: asyncio.AbstractEventLoop, asking: Coroutine[Any, Any, T]) -> T:
    """Wait in a thread of the server for what the loop finds out, for as long as a scrape may."""
    asked = asyncio.run_coroutine_threadsafe(asking, loop)
    try:
        return asked.result(_PATIENCE.total_seconds())
    except TimeoutError:
        asked.cancel()
        raise
