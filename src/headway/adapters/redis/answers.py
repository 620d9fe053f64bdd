"""One open connection: calls go out as they come, and answers come back in the same order.

A call is one write and one future. Nothing is locked: whoever calls while others wait sends behind
them. A call that is cancelled keeps its place, so its answer is thrown away and not taken for the
next one's.
"""

import asyncio
from collections import deque
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection, DefaultParser
from redis.exceptions import (
    ConnectionError,  # noqa: A004 (its own)
    InvalidResponse,
    ReadOnlyError,
    RedisError,
    TimeoutError,  # noqa: A004 (its own)
)

_NOT_YET = object()


class Answers(asyncio.Protocol):
    """Takes over a connection that redis-py has opened: it is encrypted, logged in, and ready."""

    def __init__(self, opened: AbstractConnection) -> None:
        self._opened = opened
        self._within: float | None = opened.socket_timeout
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=DefaultParser.parse_error,  # so errors are of the classes of redis-py
            notEnoughData=_NOT_YET,
        )
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._answered_at = 0.0
        """When an answer last came: only then does the server begin with the next call."""
        self.is_lost = False
        self._transport: Any = opened._writer.transport  # type: ignore[union-attr]  # noqa: SLF001 (redis-py shows it nowhere)
        peer = self._transport.get_extra_info("peername")
        self._address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        self._before = self._transport.get_protocol()
        self._transport.set_protocol(self)

    def to(self, packed: bytes) -> asyncio.Future[Any]:
        """Send a call. Its answer may be an error, which nobody has raised yet."""
        future = self._loop.create_future()
        if self.is_lost:  # between being opened and now
            future.set_result(self._error("was lost", ConnectionError))
            return future
        self._waiting.append((future, self._loop.time()))
        self._transport.write(packed)
        if self._sweeping is None and self._within is not None:
            self._sweeping = self._loop.call_later(self._within, self._sweep)
        return future

    async def close(self) -> None:
        """Let go of the connection; whoever still waits is told."""
        self._lose("was closed")
        await self._opened.disconnect()

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            before = len(self._waiting)
            while (answer := self._reader.gets()) is not _NOT_YET:
                future, _ = self._waiting.popleft()
                if not future.done():  # it is when its caller was cancelled
                    future.set_result(answer)
                if isinstance(answer, ReadOnlyError):
                    # It was the primary once. Whoever opens anew asks who is at this address now.
                    self._lose("leads to a replica")
            if len(self._waiting) < before:
                self._answered_at = self._loop.time()
        except (InvalidResponse, IndexError):  # IndexError: nobody asked for this one
            self._lose("was given up: what came over it is no answer")

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose("was lost" if exc is None else f"was lost ({exc})")
        self._before.connection_lost(exc)  # redis-py waits for that when it closes

    def _sweep(self) -> None:
        """Look whether the call that is next waits too long: one timer serves all of them."""
        self._sweeping = None
        if not self._waiting or self._within is None:
            return
        until = max(self._waiting[0][1], self._answered_at) + self._within
        if until > self._loop.time():
            self._sweeping = self._loop.call_at(until, self._sweep)
        else:
            # Its answer may still come: over this connection nobody could tell it from others.
            self._lose(f"gave no answer within {self._within:g} s", TimeoutError)

    def _lose(self, why: str, kind: type[RedisError] = ConnectionError) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._transport.abort()
        for future, _ in self._waiting:
            if not future.done():
                future.set_result(self._error(why, kind))
        self._waiting.clear()

    def _error(self, why: str, kind: type[RedisError]) -> RedisError:
        return kind(f"the connection to Redis at {self._address} {why}")
