"""What `headway run` does: one worker in this process, or several under a supervisor."""

import asyncio
import contextlib
import importlib.util
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from headway.adapters.system.clock import CLOCK
from headway.assembly.engine import open_engine
from headway.assembly.metrics import metrics_backend
from headway.assembly.retrying import LOGS
from headway.assembly.running import reload_log_level, run_services
from headway.assembly.settings import SHARED_COUNTERS, environment, retry_config
from headway.assembly.supervising import Supervisor
from headway.core.errors import ConfigurationError
from headway.core.extras import cure
from headway.core.worker_settings import WorkerSettings
from headway.ports.engine import Engine
from headway.ports.observer import Observer
from headway.runtime.service import Service
from headway.runtime.worker import Worker

_LOG = logging.getLogger("headway")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Where /metrics is served."""

    host: str
    port: int


async def serve_here(
    services: Sequence[Service],
    *,
    bus: str | None,
    settings: WorkerSettings,
    metrics: Metrics | None = None,
    as_long_as_open: int | None = None,
) -> None:
    """Run services in this process.

    `as_long_as_open` is a file descriptor that nobody writes to: when its other end is closed, be
    it by the death of the process that held it, that is an order to stop.
    """
    loop = asyncio.get_running_loop()
    workers: list[Worker] = []
    with contextlib.ExitStack() as stack:

        def started(worker: Worker, engine: Engine) -> None:
            workers.append(worker)
            if as_long_as_open is not None:
                loop.add_reader(as_long_as_open, _stop_at_the_end, as_long_as_open, worker)
            if metrics is not None:
                _serve_metrics(stack, engine, metrics)

        try:
            await run_services(
                *services,
                bus=bus,
                settings=settings,
                observer=_observer(metrics),
                started=started,
            )
        finally:
            if as_long_as_open is not None:
                loop.remove_reader(as_long_as_open)
    left = sum(worker.handlers_left for worker in workers)
    if left:
        # Python would wait for them, and they cannot be stopped. Their events were handed back.
        _LOG.warning("Stopped, leaving %d handlers behind that did not end in time", left)
        LOGS.flush()
        logging.shutdown()
        os._exit(0)
    _LOG.info("Stopped (process %d)", os.getpid())


async def serve_many(
    command: Sequence[str],
    workers: int,
    *,
    bus: str | None,
    metrics: Metrics | None,
    patience: timedelta,
) -> bool:
    """Run the same services in several processes, and replace the ones that die.

    A worker that takes longer than `patience` to stop is killed. False: one was ended by force.
    """
    retry_config()  # refused here once, and not by every worker
    metrics_backend(environment())
    engine = open_engine(bus)
    try:
        with contextlib.ExitStack() as stack:
            died: Callable[[int], None] = _nothing_to_mark
            if metrics is not None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-"))
                # Set, not read: prometheus-client looks there in every worker.
                os.environ[SHARED_COUNTERS] = folder  # noqa: TID251
                _serve_metrics(stack, engine, metrics, shared=folder)
                died = partial(_mark_dead, folder)
            reload = partial(reload_log_level, bus)
            supervisor = Supervisor(
                command, workers, CLOCK, patience=patience, died=died, reload=reload
            )
            return await supervisor.run()
    finally:
        await engine.close()


def _stop_at_the_end(descriptor: int, worker: Worker) -> None:
    if not os.read(descriptor, 1024):
        asyncio.get_running_loop().remove_reader(descriptor)
        _LOG.info("The process that started this worker is gone or told it to end: stopping")
        worker.stop()


def _observer(metrics: Metrics | None) -> Observer | None:
    """Count for Prometheus if anybody will ask: our own page, or the supervisor's."""
    if metrics is None and not environment().get(SHARED_COUNTERS):
        return None
    _check_prometheus()
    from headway.adapters.prometheus.observer import PrometheusObserver  # noqa: PLC0415 (an extra)

    return PrometheusObserver()


def _serve_metrics(
    stack: contextlib.ExitStack, engine: Engine, metrics: Metrics, shared: str | None = None
) -> None:
    _check_prometheus()
    from headway.assembly.metrics_server import metrics_server  # noqa: PLC0415 (an extra)

    loop = asyncio.get_running_loop()
    port = stack.enter_context(
        metrics_server(engine, loop, host=metrics.host, port=metrics.port, shared=shared)
    )
    _LOG.info("Metrics are at http://%s:%d/metrics", metrics.host, port)


def _check_prometheus() -> None:
    if importlib.util.find_spec("prometheus_client") is None:
        raise ConfigurationError(f"--metrics-port needs prometheus-client: {cure('prometheus')}")


def _mark_dead(folder: str, pid: int) -> None:
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 (an extra)

    mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]


def _nothing_to_mark(_pid: int) -> None:
    """No metrics, no marks."""
