"""Calls of scripts on one server, over one connection that is opened again when it is lost.

redis-py opens it, so what a URL may say of addresses, TLS, users and databases means what it means
there. Its own way of making calls takes several times as long as the call: see decision 0021.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import hiredis
from redis.asyncio import Redis
from redis.exceptions import RedisError

from headway.adapters.redis.answers import Answers
from headway.adapters.redis.opening import LOST, retries

_OURS = {
    "protocol": 2,  # with the third, the server may say something that nobody asked for
    "retry": None,  # the call is repeated, and opening is a part of it
}
_CLOSED = "this connection to Redis was closed: open the sequences anew"


class Link:
    """One connection for all callers of one event loop."""

    def __init__(self, client: Redis, meet: Callable[[], Awaitable[None]]) -> None:
        """Take whose settings it has, and what is done once, when the server is first there."""
        self._client = client
        self._pool = client.connection_pool
        self._meet: Callable[[], Awaitable[None]] | None = meet
        self._retry = retries()
        self._answers: Answers | None = None
        self._opening: asyncio.Task[Answers] | None = None
        self._is_closed = False

    async def execute_command(self, *parts: Any) -> Any:
        """Make a call; it may be repeated, so the same one must be answered the same way."""
        packed = hiredis.pack_command(parts)
        answers, first = self._answers, None
        if answers is not None and not answers.is_lost:  # nearly always, so without ceremony
            first = await answers.to(packed)
            if not isinstance(first, RedisError):
                return first
            if not isinstance(first, LOST):
                raise first
        ends = [first] if first is not None else []

        async def asked() -> Any:
            if ends:  # the try that was made already
                raise ends.pop()
            return await self._asked(packed)

        return await self._retry.call_with_retry(asked, _nothing)

    async def aclose(self) -> None:
        """Let go of the connection, and of the client too."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})  # whoever else waits for it is told
        if self._answers is not None:
            await self._answers.close()
        await self._client.aclose()

    async def _asked(self, packed: bytes) -> Any:
        answers = self._answers
        if answers is None or answers.is_lost:
            answers = await self._opened()
        answer = await answers.to(packed)
        if isinstance(answer, RedisError):
            raise answer
        return answer

    async def _opened(self) -> Answers:
        """Wait until it is open: once for all who wait, whoever of them is cancelled meanwhile."""
        if self._is_closed:
            raise RedisError(_CLOSED)
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._is_opened)
        opening = self._opening
        await asyncio.wait({opening})
        if opening.cancelled():  # by whoever closes: those who wait were not cancelled
            raise RedisError(_CLOSED)
        return opening.result()

    def _is_opened(self, opening: asyncio.Task[Answers]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # nobody may be left who hears of it

    async def _open(self) -> Answers:
        if self._answers is not None:
            await self._answers.close()
        opened = self._pool.connection_class(**{**self._pool.connection_kwargs, **_OURS})
        try:
            await opened.connect()  # type: ignore[no-untyped-call]
        except BaseException:
            await opened.disconnect(nowait=True)
            raise
        self._answers = Answers(opened)
        if self._meet is not None:
            meet, self._meet = self._meet, None
            await meet()
        return self._answers


async def _nothing(_error: Exception) -> None:
    """What is lost is opened again by the next try."""
