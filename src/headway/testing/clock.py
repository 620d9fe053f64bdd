"""A clock for tests: waits take no time, and the time is what the test makes of it."""

import asyncio
import heapq
import itertools
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from headway.ports.clock import ClockReading

_QUIET_ROUNDS = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class VirtualClock:
    """Time that stands still while anybody works, and jumps while everybody waits.

    `sleep` moves the time on by its delay and returns at once. `wait` lets all other tasks run
    first: only when none of them has anything left to do does the time jump to the earliest end of
    a wait, and that one task goes on. Tasks whose waits end together go on one after another, in
    the order in which they began to wait. So the same test takes the same course every time.

    A task has nothing left to do when the event loop has nothing more to call; where a
    call from outside may come (a thread, a socket, a timer), when it has gone round a hundred times
    without anybody coming to wait. So a task that waits for the real world, a socket or a thread,
    may look as if it had nothing to do: give it the real clock. `asyncio.timeout` and
    `asyncio.sleep` keep to the real time.

    >>> clock = VirtualClock()
    >>> clock.sleep(timedelta(minutes=30))
    >>> clock.now().isoformat()
    '2000-01-01T00:30:00+00:00'
    >>> clock.waits
    [datetime.timedelta(seconds=1800)]
    """

    def __init__(self, start: datetime = datetime(2000, 1, 1, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError(f"start={start!r} is not accepted: name its time zone, such as UTC")
        self.waits: list[timedelta] = []
        """Every delay that was asked for, by `sleep` or by `wait`, in order."""
        self._now = start.astimezone(UTC)
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._waiting: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._mover: asyncio.Task[None] | None = None
        self._others = frozenset(threading.enumerate())
        """Threads that were there before, and so have no part in this."""

    def now(self) -> datetime:
        return self._now

    def read(self) -> ClockReading:
        seconds = (self._now - _EPOCH).total_seconds()
        return ClockReading(self._now, seconds, seconds, "virtual")

    def advance(self, delay: timedelta) -> None:
        """Let time pass, as work that takes long would; no task waited, so nothing is recorded."""
        self._move_to(self._now + delay)

    def sleep(self, delay: timedelta) -> None:
        with self._lock:  # two threads that sleep a second each make two seconds
            self.waits.append(delay)
            self._now += max(delay, timedelta())

    async def wait(self, delay: timedelta) -> None:
        self.waits.append(delay)
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self._now + delay, next(self._order), over))
        if self._mover is None or self._mover.done():
            self._mover = asyncio.create_task(self._move_on())
        await over

    async def _move_on(self) -> None:
        while self._waiting:
            await self._quiet()
            end, _, over = heapq.heappop(self._waiting)
            if not over.done():  # a task that was cancelled waits for nothing
                self._move_to(end)
                over.set_result(None)

    async def _quiet(self) -> None:
        quiet, came = 0, len(self.waits)
        loop = asyncio.get_running_loop()
        while quiet < _QUIET_ROUNDS:
            await asyncio.sleep(0)  # noqa: TID251 (one round of the event loop)
            if _is_idle(loop) and self._others.issuperset(threading.enumerate()):
                return  # for certain, and a hundred times as fast
            quiet = quiet + 1 if came == len(self.waits) else 0
            came = len(self.waits)

    def _move_to(self, instant: datetime) -> None:
        with self._lock:
            self._now = max(self._now, instant)


def _is_idle(loop: asyncio.AbstractEventLoop) -> bool:
    """Say whether a loop has nothing to call but its caller, and hears from nobody; else: perhaps.

    No public name of asyncio tells. Of another kind of loop we do not know.
    """
    if type(loop) is not asyncio.SelectorEventLoop:
        return False
    own: Any = loop
    if own._ready or own._scheduled:  # noqa: SLF001 (as said)
        return False
    return len(own._selector.get_map()) == 1  # noqa: SLF001 (by which other threads wake it)
