"""Run services in this process until told to stop."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from headway.adapters.logs.writing import change_level
from headway.adapters.system.chance import CHANCE
from headway.adapters.system.clock import CLOCK
from headway.assembly.engine import open_engine
from headway.assembly.metrics import metrics_backend
from headway.assembly.reporting import reporter_beside
from headway.assembly.retrying import LOGS
from headway.assembly.settings import (
    engine_settings,
    environment,
    log_level,
    retry_config,
    shown_engine,
    sweep_settings,
)
from headway.assembly.signals import obeying
from headway.assembly.terminal import Terminal
from headway.core.engine_url import SqliteUrl
from headway.core.errors import ConfigurationError
from headway.core.worker_settings import WorkerSettings
from headway.ports.engine import Engine
from headway.ports.observer import Observer
from headway.runtime.observers import Observers
from headway.runtime.reports import ReportObserver
from headway.runtime.service import Service
from headway.runtime.worker import Worker

_LOG = logging.getLogger("headway")

ENDED_WHILE_BLOCKED = 1
"""What a worker ends with if a handler still blocked its event loop when the grace was over."""
_LAST_LINES = 1.0
"""Seconds that the log may take before the process ends all the same."""


async def run_services(
    *services: Service,
    bus: str | None = None,
    settings: WorkerSettings | None = None,
    observer: Observer | None = None,
    started: Callable[[Worker, Engine], None] | None = None,
) -> None:
    """Run services until SIGTERM or Ctrl-C; what is running then is finished first.

    Args:
        services: The services.
        bus: URL of the engine; the one that HEADWAY_BUS names if not given.
        settings: How much is done at once, and how it stops.
        observer: Hears the facts besides the log.
        started: Called with the worker once it exists, to stop it by other means.
    """
    if not services:
        raise ConfigurationError("There is no service to run. Use run_services(SERVICE, ...).")
    retry = retry_config()
    metrics_backend(environment())  # handlers may ask for it late: a misspelt one is refused now
    observers: list[Observer] = [
        LOGS,
        ReportObserver(reporter_beside(bus)),
        *([observer] if observer else []),
    ]
    place = _place(bus)
    engine = open_engine(bus, for_worker=True)
    worker = Worker(
        services,
        engine,
        clock=CLOCK,
        chance=CHANCE,
        observer=Observers(*observers),
        retry=retry,
        settings=settings,
        sweep=sweep_settings() if settings is not None and settings.requeue_at_start else None,
        name=f"{socket.gethostname()}:{os.getpid()}",
        place=place,
        beats_in_thread=True,
        end_process=_end_process,
    )
    orders = _orders(worker, settings or WorkerSettings(), bus)
    with obeying(orders, heard=partial(_heard, worker)):
        if started is not None:
            started(worker, engine)
        await worker.run()


def _place(bus: str | None) -> str:
    """Name the engine, and say if its file is yet to be made: it may be the wrong folder."""
    meant = engine_settings(bus)
    is_new = isinstance(meant.bus, SqliteUrl) and not Path(meant.bus.path).exists()
    return shown_engine(meant) + " (a new file)" * is_new


def _orders(
    worker: Worker, settings: WorkerSettings, bus: str | None
) -> Mapping[signal.Signals, Callable[[], None]]:
    terminal = Terminal()

    def stop(why: str) -> None:
        _LOG.info(
            "%s: stopping. Running handlers have %g s to finish; events that were not started go "
            "back to the engine",
            why,
            settings.grace.total_seconds(),
        )
        worker.stop()

    def hang_up() -> None:
        if terminal.is_gone():
            stop("SIGHUP received and the terminal is gone")
        else:
            _LOG.info("SIGHUP received: reloading settings")
            _reload(worker, bus)

    return {
        signal.SIGTERM: partial(stop, "SIGTERM received"),
        signal.SIGINT: partial(stop, "SIGINT received"),
        signal.SIGHUP: hang_up,
    }


def _heard(worker: Worker, number: int) -> None:
    """Hear a signal in a thread of its own, whatever the event loop is doing."""
    if number in {signal.SIGTERM, signal.SIGINT}:
        worker.told_to_stop()


def _end_process() -> None:
    """End at once: what Python would do at its exit waits for a thread that is blocked."""
    flushing = threading.Thread(target=LOGS.flush, daemon=True)
    flushing.start()
    flushing.join(_LAST_LINES)  # the blocked thread may hold the lock of the log
    os._exit(ENDED_WHILE_BLOCKED)


def _reload(worker: Worker, bus: str | None) -> None:
    if _are_refused(bus):
        return
    try:
        worker.reload(retry_config())
    except ConfigurationError as error:
        _LOG.error("The old retry settings stay in force: %s", error)
    _reload_log_level()


def reload_log_level(bus: str | None) -> None:
    """Read HEADWAY_LOG_LEVEL again, where Headway writes the log of this process."""
    if not _are_refused(bus):
        _reload_log_level()


def _are_refused(bus: str | None) -> bool:
    """Say whether a start would refuse these settings, because a name is misspelt or invalid."""
    try:
        engine_settings(bus)
    except ConfigurationError as error:
        _LOG.error("The old settings stay in force: %s", error)
        return True
    return False


def _reload_log_level() -> None:
    try:
        change_level(log_level())
    except ConfigurationError as error:
        _LOG.error("The old log level stays in force: %s", error)
