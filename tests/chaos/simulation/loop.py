"""An event loop whose time is pretended: while everybody waits it jumps to the end of a wait.

The virtual clock for users finds out by going round whether anybody has something left to do. The
loop itself knows, so a thousand courses of some minutes each fit into one minute.
"""

import asyncio
import itertools
import selectors
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from headway.clock import ClockReading

T = TypeVar("T")
Owner = set["asyncio.Task[Any]"]

START = datetime(2000, 1, 1, tzinfo=UTC)
OWNER: ContextVar[Owner | None] = ContextVar("OWNER", default=None)
"""Where the tasks of the running process are written down."""


_MOST_ROUNDS = 50_000
"""Of the loop, at one and the same time; some hundreds are usual."""


class StuckError(Exception):
    """Everybody waits for something that will never happen."""


class _Jumping(selectors.SelectSelector):
    """Moves the time on instead of waiting for files: there are none."""

    now = 0.0
    _rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StuckError("no task can go on, and none waits for a time")
        self._rounds = 0 if timeout > 0 else self._rounds + 1
        if self._rounds > _MOST_ROUNDS:
            raise StuckError(f"tasks go round and round, and it is always {self.now} s")
        self.now += max(timeout, 0.0)
        return []


class _Future(asyncio.Future[Any]):
    """Its place in a set does not depend on where it is in memory: sets are gone through too."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        super().__init__(loop=loop)
        self._number = next(loop.numbers)

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    """The same for tasks."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], loop: "SimulatedLoop", **names: Any
    ) -> None:
        self._number = next(loop.numbers)
        super().__init__(coroutine, loop=loop, **names)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Runs tasks in the same order every time, and keeps them apart by their owners."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        self.numbers = itertools.count()
        super().__init__(self._jumping)
        self.set_task_factory(_owned)
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        return self._jumping.now

    def create_future(self) -> "asyncio.Future[Any]":
        return _Future(self)


def _owned(
    loop: asyncio.AbstractEventLoop,
    coroutine: Any,
    *,
    context: Context | None = None,
    **names: Any,
) -> "asyncio.Task[Any]":
    assert isinstance(loop, SimulatedLoop)
    task = _Task(coroutine, loop, context=context, **names)
    owner = (context or copy_context()).get(OWNER)
    if owner is not None:
        owner.add(task)
        task.add_done_callback(owner.discard)
    return task


class SimulatedClock:
    """Tells the time of the running loop."""

    def now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())

    def read(self) -> ClockReading:
        seconds = asyncio.get_running_loop().time()
        return ClockReading(self.now(), self.now().timestamp(), seconds, "simulated")

    def sleep(self, delay: timedelta) -> None:
        raise AssertionError(f"somebody blocks the event loop for {delay}")

    async def wait(self, delay: timedelta) -> None:
        await asyncio.sleep(delay.total_seconds())


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a course from its beginning to its end, in pretended time."""
    loop = SimulatedLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()
