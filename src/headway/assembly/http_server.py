"""Serve an application over HTTP: listen, and stop when told to."""

import asyncio
import signal
import socket
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.supervisors import Multiprocess

from headway.core.errors import ConfigurationError

LAST_REQUESTS = timedelta(seconds=20)
"""A client that sends its body for ever must not keep a service from stopping."""

_BACKLOG = 2048


def listen(host: str, port: int, *, named: str, cure: str = "choose others") -> socket.socket:
    """Open the socket; `named` says by which setting host and port were chosen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"{named} cannot be listened on: {error.strerror or error}; {cure}"
        ) from error


def address_of(listener: socket.socket) -> str:
    """Give the URL of a socket that listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class StopOrder:
    """Notes the order to stop, and ends what is being waited for.

    It raises nothing: an exception raised by a signal's handler may hit the start of a thread,
    which is then never told to end, and Python would wait for it for ever.
    """

    def __init__(self) -> None:
        self.given = False
        self._waiting: asyncio.Task[None] | None = None

    @classmethod
    def by_signal(cls) -> "StopOrder":
        """Take the order from SIGTERM.

        By default that ends Python on the spot, with its folders left behind: before uvicorn has
        its own handlers, and again when it raises the signal anew after its shutdown.
        """
        order = cls()
        signal.signal(signal.SIGTERM, order.take)
        return order

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


def serve_until_told(
    application: Callable[[], Any],
    listener: socket.socket,
    order: StopOrder,
    *,
    workers: int = 1,
    connections: int | None = None,
    last_requests: timedelta = LAST_REQUESTS,
) -> None:
    """Serve what is made by `application`, in this process or in several; answer what has begun.

    A request beyond so many `connections` is answered by 503: each may hold a body in memory.
    """
    config = uvicorn.Config(
        application,
        factory=True,
        workers=workers,
        log_config=None,
        access_log=False,
        http=TimelyProtocol,
        limit_concurrency=connections,
        timeout_graceful_shutdown=round(last_requests.total_seconds()),
    )
    if workers == 1:
        _Server(config, order).run(sockets=[listener])
        return
    supervisor = Multiprocess(config, sockets=[listener])  # from here on it takes the signals
    if not order.given:
        supervisor.run()


class TimelyProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type] # (chosen when loaded)
    """Closes a connection on which no request has come in time, or only a part of its head."""

    request_within = timedelta(seconds=30)

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.loop.call_later(self.request_within.total_seconds(), self._close_unless_asked)

    def _close_unless_asked(self) -> None:
        if self.cycle is None:
            self.transport.close()


class _Server(uvicorn.Server):
    """Stops at once if it was told to before it could take the signals."""

    def __init__(self, config: uvicorn.Config, order: StopOrder) -> None:
        super().__init__(config)
        self._order = order

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._order.given:
            self.should_exit = True
        else:
            await super().startup(sockets)
