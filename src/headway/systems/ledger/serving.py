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
from collections.abc import Coroutine, Iterator
from functools import partial
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from uvicorn.supervisors import Multiprocess

from headway import ConfigurationError
from headway.adapters.logs.formats import JsonFormatter, TerminalFormatter
from headway.assembly.settings import SHARED_COUNTERS
from headway.systems.ledger.front_door import create_app
from headway.systems.ledger.metrics import LedgerMetrics
from headway.systems.ledger.opening import open_store
from headway.systems.ledger.settings import LedgerSettings, masked

log = logging.getLogger("headway.ledger")

# A client that sends its body for ever must not keep the service from stopping.
_LAST_REQUESTS_SECONDS = 20


def serve(
    settings: LedgerSettings, *, workers: int = 1, as_long_as_open: int | None = None
) -> None:
    """Serve until told to stop; requests begun before that are answered first.

    `as_long_as_open` is a file descriptor that nobody writes to: when its other end is closed, be
    it by the death of the process that held it, that is an order to stop.
    """
    # By default SIGTERM ends Python on the spot, with its folders left behind: before uvicorn has
    # its own handlers, and again when it raises the signal anew after its shutdown.
    order = _StopOrder()
    signal.signal(signal.SIGTERM, order.take)
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
        host, port = listener.getsockname()[:2]
        log.info(
            "Ledger is at http://%s:%d (description: /docs)",
            f"[{host}]" if ":" in host else host,
            port,
            extra={"database": masked(settings.database_url), "workers": workers},
        )
        config = uvicorn.Config(
            partial(application, settings),
            factory=True,
            workers=workers,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_LAST_REQUESTS_SECONDS,
        )
        if workers == 1:
            _Server(config, order).run(sockets=[listener])
            return
        supervisor = Multiprocess(config, sockets=[listener])  # from here on it takes the signals
        if not order.given:
            supervisor.run()


class _StopOrder:
    """Notes the order to stop, and ends what is being waited for.

    It raises nothing: an exception raised by a signal's handler may hit the start of a thread,
    which is then never told to end, and Python would wait for it for ever.
    """

    def __init__(self) -> None:
        self.given = False
        self._waiting: asyncio.Task[None] | None = None

    def take(self, _number: int, _frame: object) -> None:
        self.given = True
        if self._waiting is not None:
            self._waiting.get_loop().call_soon_threadsafe(self._waiting.cancel)

    async def ends(self, work: Coroutine[None, None, None]) -> None:
        """Do some work unless, or until, the order comes."""
        self._waiting = asyncio.ensure_future(work)
        if self.given:
            self._waiting.cancel()
        try:
            await self._waiting
        except asyncio.CancelledError:
            if not self.given:
                raise
        finally:
            self._waiting = None


class _Server(uvicorn.Server):
    """Stops at once if it was told to before it could take the signals."""

    def __init__(self, config: uvicorn.Config, order: _StopOrder) -> None:
        super().__init__(config)
        self._order = order

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._order.given:
            self.should_exit = True
        else:
            await super().startup(sockets)


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
        said = " ".join(str(error).split())
        raise ConfigurationError(
            f"LEDGER_DATABASE_URL={masked(settings.database_url)!r} cannot be used: "
            f"{type(error).__name__}: {said}; {_cure(settings)}"
        ) from error


def _cure(settings: LedgerSettings) -> str:
    if settings.sqlite_path is not None:
        return "is it a file of SQLite, and may you write to it and to its folder?"
    name = urlsplit(settings.database_url).path.removeprefix("/") or "NAME"
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


def _listen(settings: LedgerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(
            f"LEDGER_HOST={settings.host!r}, LEDGER_PORT={settings.port!r} cannot be listened on: "
            f"{error.strerror}; choose others, by --host and --port too"
        ) from error


def _write_logs() -> None:
    """Write short lines for a person at a terminal, JSON for anything else that reads them."""
    handler = logging.StreamHandler()
    handler.setFormatter(TerminalFormatter() if sys.stderr.isatty() else JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # uvicorn says much about itself on the way up and down that is of no use to anybody.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
