"""What applies one result, made into what applies many, and what becomes of it when told to stop.

A task stops where it is told to. A thread cannot be stopped: until it ends, its position is in its
hands, and nobody else may begin with it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from headway.core.sequence_answers import Turn

Apply = Callable[[Turn], Awaitable[None]]
ApplyAll = Callable[[Sequence[Turn]], Awaitable[Sequence[BaseException | None]]]
"""Applies results of different keys; says for each what it raised, if it did."""


class Stopped(asyncio.CancelledError):
    """Told to stop, and every result has come to its end: some of them are applied."""

    def __init__(self, ends: Sequence[BaseException | None]) -> None:
        self.ends = ends
        super().__init__("told to stop while results were applied")


def one_by_one(apply: Apply) -> ApplyAll:
    """Make what applies many of what applies one: each raises for itself."""

    async def apply_all(works: Sequence[Turn]) -> Sequence[BaseException | None]:
        applying = [asyncio.ensure_future(apply(work)) for work in works]
        if await _is_stopped(applying, ask=True):
            raise Stopped([_end_of(each) for each in applying])
        return [_end_of(each) for each in applying]

    return apply_all


def in_thread(apply: Callable[[Turn], Awaitable[None] | None]) -> Apply:
    """Make a coroutine of a function. Told to stop, it ends when its thread has."""

    async def applied(work: Turn) -> None:
        working = asyncio.ensure_future(asyncio.to_thread(apply, work))
        is_stopped = await _is_stopped([working], ask=False)
        more = working.result()
        if more is None:
            return
        if is_stopped:  # in time: nothing of this has begun
            if isinstance(more, Coroutine):
                more.close()
            raise asyncio.CancelledError
        await more  # something that can be called, and gives a coroutine

    return applied


async def _is_stopped(working: Iterable[asyncio.Future[Any]], *, ask: bool) -> bool:
    """Wait until all have ended; say whether the wait was cancelled, and `ask` them to end then."""
    is_stopped, left = False, set(working)
    while left:
        try:
            _, left = await asyncio.wait(left)
        except asyncio.CancelledError:
            is_stopped, left = True, {each for each in left if not each.done()}
            for each in left if ask else ():
                each.cancel()
    return is_stopped


def _end_of(applying: asyncio.Future[None]) -> BaseException | None:
    return asyncio.CancelledError() if applying.cancelled() else applying.exception()
