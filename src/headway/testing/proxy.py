"""A TCP proxy that breaks connections, if wanted at a chosen moment of the conversation.

    with PostgreSQL() as postgres, Proxy(*postgres.address) as proxy:
        rule = proxy.when(b"COMMIT", Fault.CUT_AFTER)
        ...  # use proxy.through(postgres.url); the commit happens, its sender never hears of it
        assert rule.fired == 1

It runs a loop in a thread of its own, so tests use the same object whether they are async or not.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from headway.testing.servers.loopback import HOST, free_port

_CHUNK = 65536
_LOOK_BACK = 1024  # how much of a marker may lie in earlier chunks
_CONTROL_WITHIN = 10.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, zero seconds


class Fault(Enum):
    """What happens to a connection when its client sends the bytes of a rule.

    "Cut": the client sees a reset, the server a close after the last byte it was given.
    "Hang": both connections stay open and nothing passes, in either direction, until `cut()` or the
    end of the proxy. Not even a close passes: the server keeps the client's locks.
    """

    CUT_BEFORE = auto()
    """Cut; the server never gets the bytes."""
    CUT_DURING = auto()
    """The server gets the bytes, then cut at once. The server acts on them, perhaps only later."""
    CUT_AFTER = auto()
    """The server gets the bytes and answers, the answer is dropped, then cut: the server is done.

    The first bytes from the server count as the answer: for clients that ask one thing at a time.
    """
    HANG_BEFORE = auto()
    """Hang; the server never gets the bytes."""
    HANG_AFTER = auto()
    """The server gets the bytes and acts on them; its answer stays on the way."""


@dataclass(slots=True, eq=False)
class Rule:
    """A fault and the bytes from a client that bring it about; `fired` counts how often."""

    sent: bytes | Callable[[bytes], bool]
    fault: Fault
    times: int | None
    fired: int = 0

    def applies(self, earlier: bytes, chunk: bytes) -> bool:
        """Say whether the chunk, after what the client sent before it, brings the fault about."""
        if self.times is not None and self.fired >= self.times:
            return False
        if not isinstance(self.sent, bytes):
            return self.sent(chunk)
        # One byte less than the marker: what lies in earlier chunks alone has had its turn.
        overlap = min(len(self.sent) - 1, len(earlier))
        return self.sent in earlier[len(earlier) - overlap :] + chunk


class Proxy:
    """Pass bytes between clients and one server, until told otherwise.

    What a method asks for is in force when it returns. While the server is down, clients are reset.
    """

    def __init__(self, host: str, port: int) -> None:
        self.port = free_port()
        self._target = (host, port)
        self._wire = _Wire()
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._errors: list[BaseException] = []
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Where the proxy listens."""
        return HOST, self.port

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def through(self, url: str) -> str:
        """Give the URL of the server as it reads through the proxy."""
        parts = urlsplit(url)
        login = "".join(parts.netloc.rpartition("@")[:2])
        return urlunsplit(parts._replace(netloc=f"{login}{HOST}:{self.port}"))

    def when(
        self, sent: bytes | Callable[[bytes], bool], fault: Fault, *, times: int | None = 1
    ) -> Rule:
        """Bring a fault about when a client sends certain bytes; `times=None` is every time.

        `sent` is a marker, found also where it is split between chunks, or a predicate on one chunk
        as it was read from the client. The chunk that completes the marker is treated as a whole.
        Of several rules that apply, the one given first fires.
        """
        rule = Rule(sent, fault, times)
        self._wire.rules.append(rule)
        return rule

    def slow_down(self, latency: timedelta) -> None:
        """Let every chunk wait, in each direction: question and answer take twice the latency."""
        self._wire.latency = latency

    def cut(self, *, reset: bool = True) -> None:
        """End all connections; clients see a reset or else an orderly close, servers a close."""
        self._do(self._cut(reset=reset))

    def refuse(self) -> None:
        """Refuse new connections, as a server that is down does; those there are stay."""
        self._do(self._stop_accepting())

    def black_hole(self) -> None:
        """Pass nothing on, as in a network partition: nobody is told, clients still connect."""
        self._do(self._wire.block())

    def heal(self) -> None:
        """Be a plain wire again: no rules, no latency; what a black hole held back now arrives."""
        self._wire.rules.clear()
        self._wire.latency = timedelta()
        self._do(self._open())

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._do(self._stop_accepting())
        self._do(self._cut(reset=True))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._errors:
            raise self._errors[0]

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self.__exit__(kind, error, trace)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_CONTROL_WITHIN)

    # From here on everything runs in the loop of the proxy.

    async def _open(self) -> None:
        self._wire.unblocked.set()
        if self._accepting is None:
            listener = socket.create_server(self.address)
            listener.settimeout(0)
            self._accepting = self._loop.create_task(self._accept(listener))

    async def _stop_accepting(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
            self._accepting = None

    async def _cut(self, *, reset: bool) -> None:
        ending = dict(self._connections)
        for task, connection in ending.items():
            connection.reset = reset
            task.cancel()
        if ending:
            await asyncio.wait(ending)

    async def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                client, _ = await self._loop.sock_accept(listener)
                connection = _Connection(self._wire, client)
                task = self._loop.create_task(connection.carry(self._target))
                self._connections[task] = connection
                task.add_done_callback(self._forget)

    def _forget(self, ended: asyncio.Task[None]) -> None:
        del self._connections[ended]
        # Such as an error in a predicate of the test: raised at the end, where the test sees it.
        if not ended.cancelled() and (error := ended.exception()):
            self._errors.append(error)


class _Wire:
    """The condition of the way between clients and server, the same for all connections."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.latency = timedelta()
        self.unblocked = asyncio.Event()

    async def block(self) -> None:
        self.unblocked.clear()

    async def travel(self) -> None:
        """Take the time a chunk takes."""
        if self.latency:
            await asyncio.sleep(self.latency.total_seconds())  # noqa: TID251, the wire has no port
        await self.unblocked.wait()

    def fault(self, earlier: bytes, chunk: bytes) -> Fault | None:
        for rule in tuple(self.rules):
            if rule.applies(earlier, chunk):
                rule.fired += 1
                return rule.fault
        return None


class _CutError(Exception):
    """A rule wants this connection cut."""


class _Connection:
    """The socket of one client and, belonging to it, one to the server."""

    def __init__(self, wire: _Wire, client: socket.socket) -> None:
        self.reset = True
        self._wire, self._client, self._server = wire, client, socket.socket()
        self._hangs = self._ends_with_answer = False
        for end in (self._client, self._server):
            end.settimeout(0)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def carry(self, target: tuple[str, int]) -> None:
        """Carry bytes both ways until both sides have closed, or one is broken."""
        try:
            await self._wire.unblocked.wait()
            await asyncio.get_running_loop().sock_connect(self._server, target)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._carry_questions())
                directions.create_task(self._carry_answers())
            self.reset = False
        except* (OSError, _CutError):
            self.reset = True
        finally:
            self._close()

    async def _carry_questions(self) -> None:
        earlier = b""
        while chunk := await self._receive(self._client):
            fault = self._wire.fault(earlier, chunk)
            earlier = (earlier + chunk)[-_LOOK_BACK:]
            # Set before anything is sent, so that no answer to it can slip through.
            self._ends_with_answer |= fault is Fault.CUT_AFTER
            self._hangs |= fault in {Fault.CUT_DURING, Fault.HANG_BEFORE, Fault.HANG_AFTER}
            if fault not in {Fault.CUT_BEFORE, Fault.HANG_BEFORE}:
                await asyncio.get_running_loop().sock_sendall(self._server, chunk)
            if fault in {Fault.CUT_BEFORE, Fault.CUT_DURING}:
                raise _CutError
            await self._hang_if_told()
        self._server.shutdown(socket.SHUT_WR)

    async def _carry_answers(self) -> None:
        while chunk := await self._receive(self._server):
            await self._hang_if_told()
            if self._ends_with_answer:
                raise _CutError
            await asyncio.get_running_loop().sock_sendall(self._client, chunk)
        await self._hang_if_told()
        self._client.shutdown(socket.SHUT_WR)

    async def _receive(self, end: socket.socket) -> bytes:
        chunk = await asyncio.get_running_loop().sock_recv(end, _CHUNK)
        await self._wire.travel()
        return chunk

    async def _hang_if_told(self) -> None:
        if self._hangs:
            await asyncio.get_running_loop().create_future()  # only a cancellation ends it

    def _close(self) -> None:
        # The server first: whoever hears of the cut may look at once for what the server did.
        with contextlib.suppress(OSError):  # it may never have been connected, or have left
            self._server.shutdown(socket.SHUT_WR)
        self._server.close()
        with contextlib.suppress(OSError):
            if self.reset:
                self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            else:
                self._client.shutdown(socket.SHUT_WR)
        self._client.close()
