"""Run the ledger as one process, or as several behind one port."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from headway import ConfigurationError
from headway.http import (
    LAST_REQUESTS,
    StopOrder,
    address_of,
    listen,
    serve_until_told,
)
from headway.logs import JsonFormatter, TerminalFormatter, write_lines
from headway.retrying import DEFAULT_CLASSIFIER
from headway.settings import (
    SHARED_COUNTERS,
    PostgresUrl,
    hidden,
    log_level,
    read_store_url,
    shown_url,
)
from headway.systems.ledger.front_door import create_app
from headway.systems.ledger.metrics import LedgerMetrics
from headway.systems.ledger.opening import open_store
from headway.systems.ledger.settings import LedgerSettings

log = logging.getLogger("headway.ledger")


def serve(
    settings: LedgerSettings,
    *,
    workers: int = 1,
    as_long_as_open: int | None = None,
    last_requests: timedelta = LAST_REQUESTS,
) -> None:
    """Serve until told to stop; requests begun before that are answered first.

    `as_long_as_open` is a file descriptor that nobody writes to: when its other end is closed, be
    it by the death of the process that held it, that is an order to stop.
    """
    order = StopOrder.by_signal()
    if as_long_as_open is not None:
        threading.Thread(target=_stop_when_closed, args=(as_long_as_open,), daemon=True).start()
    _write_logs()
    with contextlib.ExitStack() as stack:
        if workers > 1:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-ledger-"))
            # Set, not read: prometheus-client looks there in every process that is started below.
            os.environ[SHARED_COUNTERS] = folder  # noqa: TID251
        asyncio.run(order.ends(_try_out(settings)))
        if order.given:
            return
        listener = stack.enter_context(_listen(settings))
        log.info(
            "Ledger is at %s (description: /docs)",
            address_of(listener),
            extra={"database": shown_url(settings.database_url), "workers": workers},
        )
        serve_until_told(
            partial(application, settings),
            listener,
            order,
            workers=workers,
            last_requests=last_requests,
        )


def _listen(settings: LedgerSettings) -> socket.socket:
    return listen(
        settings.host,
        settings.port,
        named=f"LEDGER_HOST={settings.host!r}, LEDGER_PORT={settings.port!r}",
        cure="choose others, by --host and --port too",
    )


def application(settings: LedgerSettings) -> FastAPI:
    """Build the service in the process that is going to serve it."""
    _write_logs()
    return create_app(open_store(settings), settings, LedgerMetrics(CollectorRegistry()))


async def _try_out(settings: LedgerSettings) -> None:
    """Prepare the store before anything is started, so that its faults are said plainly."""
    try:
        with _without_logs():
            await open_store(settings).prepare()
    except ConfigurationError:
        raise
    except Exception as error:
        said = hidden(" ".join(str(error).split()))
        is_away = DEFAULT_CLASSIFIER.classify(error).error_type == "CONNECTION_ERROR"
        kind = ConnectionError if is_away else ConfigurationError
        raise kind(
            f"LEDGER_DATABASE_URL={shown_url(settings.database_url)!r} cannot be used: "
            f"{type(error).__name__}: {said}; {_cure(settings)}"
        ) from error


def _cure(settings: LedgerSettings) -> str:
    if settings.sqlite_path is not None:
        return "is it a file of SQLite, and may you write to it and to its folder?"
    place = read_store_url("LEDGER_DATABASE_URL", settings.database_url)
    name = place.database if isinstance(place, PostgresUrl) else "NAME"
    return (
        f"is the server running there, does the database exist (createdb {name}), and may this "
        "user enter it?"
    )


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """Say nothing of single attempts: what they come to is said in one line."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _stop_when_closed(descriptor: int) -> None:
    # Not by sys.stdin: its lock, held by a thread that waits, would break the end of Python.
    while os.read(descriptor, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _write_logs() -> None:
    """Write short lines for a person at a terminal, JSON for anything else that reads them."""
    write_lines(TerminalFormatter() if sys.stderr.isatty() else JsonFormatter(), log_level())
    # uvicorn says much about itself on the way up and down that is of no use to anybody.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
