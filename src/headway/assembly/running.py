"""Run services in this process until told to stop."""

import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from functools import partial

from headway.assembly.engine import open_engine
from headway.assembly.reporting import reporter_beside
from headway.assembly.retrying import CHANCE, CLOCK, LOGS
from headway.assembly.settings import retry_config, sweep_settings
from headway.assembly.signals import obeying
from headway.assembly.terminal import Terminal
from headway.core.errors import ConfigurationError
from headway.ports.engine import Engine
from headway.ports.observer import Observer
from headway.runtime.observers import Observers
from headway.runtime.reports import ReportObserver
from headway.runtime.service import Service
from headway.runtime.worker import Worker
from headway.runtime.worker_settings import WorkerSettings

_LOG = logging.getLogger("headway")

ENDED_WHILE_BLOCKED = 1
"""What a worker ends with if a handler still blocked its event loop when the grace was over."""


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
    retry = retry_config()
    observers: list[Observer] = [
        LOGS,
        ReportObserver(reporter_beside(bus)),
        *([observer] if observer else []),
    ]
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
        beats_in_thread=True,
        end_process=_end_process,
    )
    with obeying(_orders(worker), heard=partial(_heard, worker)):
        if started is not None:
            started(worker, engine)
        await worker.run()


def _orders(worker: Worker) -> Mapping[signal.Signals, Callable[[], None]]:
    terminal = Terminal()
    return {
        signal.SIGTERM: worker.stop,
        signal.SIGINT: worker.stop,
        signal.SIGHUP: lambda: worker.stop() if terminal.is_gone() else _reload(worker),
    }


def _heard(worker: Worker, number: int) -> None:
    """Hear a signal in a thread of its own, whatever the event loop is doing."""
    if number in {signal.SIGTERM, signal.SIGINT}:
        worker.told_to_stop()


def _end_process() -> None:
    """End at once: what Python would do at its exit waits for a thread that is blocked."""
    os._exit(ENDED_WHILE_BLOCKED)


def _reload(worker: Worker) -> None:
    try:
        worker.reload(retry_config())
    except ConfigurationError as error:
        _LOG.error("The old retry settings stay in force: %s", error)
