"""Lanes: where handlers run.

A lane is a task that runs one handler after another. A handler that never suspends costs no task
and no turn of the event loop; one that waits holds up its own lane only.
"""

import asyncio
import contextvars
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.thread import _threads_queues
from datetime import datetime, timedelta
from types import FrameType
from typing import Any, cast

from headway.core.errors import HandlerTimeoutError
from headway.core.event import Event, new_event_id
from headway.ports import fork
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.runtime.attempt import Attempt, Ending
from headway.runtime.blocking import BlockingWork
from headway.runtime.persistence import RETRIED_AFTER, Persistent
from headway.runtime.service import Handler
from headway.runtime.work import Around, Buffer, Work

_TURN = timedelta(milliseconds=2)
"""How long handlers that never wait may run in a row: what has ended meanwhile waits for its
commit, and what has failed to be put off."""


class Lanes:
    """Runs attempts, a number of them at the same time, and says how each ended."""

    def __init__(
        self,
        concurrency: int,
        engine: Engine,
        clock: Clock,
        chance: Chance,
        join: Callable[[Attempt], Awaitable[None]],
        *,
        persistent: Persistent,
        ended: Callable[[Ending], None],
        broken: Callable[[], None],
    ) -> None:
        self._concurrency = concurrency
        self._join = join
        self._around = Around(
            engine.documents,
            clock.now,
            self._new_id,
            engine.bodies_wait,
            persistent.until_available,
        )
        self._clock = clock
        self._chance = chance
        self._ended = ended
        self._broken = broken
        self._ready: deque[Attempt] = deque()
        self._free: deque[asyncio.Future[None]] = deque()
        self._lanes: set[asyncio.Task[None]] = set()
        self._running = 0
        self._turn = clock.now()
        """Since when the lanes have had the loop for themselves."""
        self._turn_over: asyncio.Future[None] | None = None
        self._quiet: asyncio.Future[None] | None = None
        self._cancelling = False
        self._context = contextvars.copy_context()
        self._calls: set[Future[object]] = set()
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="headway-handler")
        self._is_child = False
        """This is a copy, in a process that a handler has forked."""
        fork.own(self)

    @property
    def load(self) -> int:
        """How many attempts are waiting or running."""
        return len(self._ready) + self._running

    def in_child(self) -> None:
        self._is_child = True
        # At its end a child of multiprocessing joins every thread of an executor, of which only
        # the one that forked is left: itself.
        cast("dict[Any, Any]", _threads_queues).pop(threading.current_thread(), None)

    def _new_id(self) -> str:
        return new_event_id(self._clock.now(), self._chance.token())

    def start(self) -> None:
        for _ in range(self._concurrency):
            self._start_lane()

    def put(self, attempt: Attempt) -> None:
        """Have an attempt run by the next free lane."""
        if not self._ready and not self._running:
            self._turn = self._clock.now()
        self._ready.append(attempt)
        while self._free:
            lane = self._free.popleft()
            if not lane.done():
                lane.set_result(None)
                break

    def withdraw(self) -> Iterator[Attempt]:
        """Take back what no lane has begun."""
        while self._ready:
            yield self._ready.popleft()

    def running(self) -> Sequence[Attempt]:
        """Give the attempts whose coroutines are at it; from any thread."""
        found = []
        for lane in tuple(self._lanes):
            frame = getattr(lane.get_coro(), "cr_frame", None)
            attempt = None if frame is None else frame.f_locals.get("attempt")
            if isinstance(attempt, Attempt) and _is_running(attempt):
                found.append(attempt)
        return found

    def of_frame(self, frame: FrameType | None) -> Attempt | None:
        """Give the attempt that a stack belongs to; from any thread."""
        while frame is not None:
            if frame.f_code is Lanes._run.__code__ and frame.f_locals.get("self") is self:
                attempt = frame.f_locals.get("attempt")
                return attempt if isinstance(attempt, Attempt) else None
            frame = frame.f_back
        return None

    async def quiet(self) -> None:
        """Wait until no handler is running."""
        if self._running:
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet

    @property
    def threads_left(self) -> int:
        """How many plain functions still run although their events were handed back."""
        return sum(call.running() for call in tuple(self._calls))

    async def end(self) -> None:
        """End the lanes; a handler that still runs is cancelled, and its event handed back."""
        self._cancelling = True
        for lane in self._lanes:
            lane.cancel()
        await asyncio.gather(*self._lanes, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start_lane(self) -> None:
        # Each in a context of its own, so that a handler's context variables stay its own.
        lane = asyncio.get_running_loop().create_task(self._lane(), context=self._context.copy())
        self._lanes.add(lane)
        lane.add_done_callback(self._lane_over)

    def _lane_over(self, lane: asyncio.Task[None]) -> None:
        self._lanes.discard(lane)
        error = None if lane.cancelled() else lane.exception()
        if error is not None:
            logging.getLogger("headway").critical("Headway itself failed", exc_info=error)
            self._broken()
        elif not self._cancelling:
            self._start_lane()

    async def _lane(self) -> None:
        ready = self._ready
        now = self._clock.now()
        while True:
            while not ready:
                free = asyncio.get_running_loop().create_future()
                self._free.append(free)
                await free
                now = self._clock.now()
            if self._turn_over is not None or now - self._turn > _TURN:
                await self._others_turn()
                now = self._turn
                continue  # another lane may have taken what was ready
            attempt = ready.popleft()
            self._running += 1
            try:
                # Where one handler ended and the next begins, the clock is asked once.
                ending = await self._run(attempt, now)
                if self._is_child:
                    fork.end_child()
                self._ended(ending)
                now = attempt.ended or self._clock.now()
            finally:
                self._running -= 1
                if self._quiet is not None and not self._running and not self._quiet.done():
                    self._quiet.set_result(None)
            if self._cancelling:
                return
            if contextvars.copy_context() != self._context:
                return  # the handler left something in the context: a new lane begins clean

    async def _others_turn(self) -> None:
        """Let whatever else is ready in the loop run; all lanes wait for the same end of it."""
        if self._turn_over is None:
            loop = asyncio.get_running_loop()
            self._turn_over = loop.create_future()
            loop.call_soon(self._next_turn, self._turn_over)
        await asyncio.shield(self._turn_over)

    def _next_turn(self, over: asyncio.Future[None]) -> None:
        self._turn, self._turn_over = self._clock.now(), None
        over.set_result(None)

    async def _run(self, attempt: Attempt, now: datetime) -> Ending:
        recovery, subscription = attempt.recovery, attempt.subscription
        held_back = None if attempt.is_probe else _held_back(attempt, now)
        if held_back is not None:
            return held_back
        attempt.started, attempt.ended = now, None
        lifecycles = recovery.service.lifecycles_by_name
        buffer = attempt.buffer = Buffer(attempt.key, self._around, lifecycles)
        try:
            ids = () if subscription.lifecycle is None else attempt.document_ids
            work = Work(buffer, attempt.travel.attempt, ids)
            if not subscription.is_coroutine:
                await self._in_thread(attempt, work, buffer)
            elif subscription.timeout is None:
                await subscription.handler(attempt.hand_over(), work)
            else:
                await _within(subscription.timeout, attempt, work)
            if attempt.missing:
                await self._join(attempt)
        except asyncio.CancelledError as error:
            if self._cancelling:
                return recovery.handed_back(attempt)
            return self._failed(attempt, error)
        except GeneratorExit as error:
            if not self._is_here():
                raise  # the lane itself is being thrown away, together with its loop
            return self._failed(attempt, error)
        # Orders to the worker come as signals, through the event loop. Whatever a handler raises,
        # SystemExit and KeyboardInterrupt too, is a failure of its event.
        except BaseException as error:  # noqa: BLE001 (it is classified)
            return self._failed(attempt, error)
        finally:
            buffer.over = True
        ended = attempt.ended = self._clock.now()
        attempt.seconds = (ended - now).total_seconds()
        return recovery.done(attempt, ended)

    def _is_here(self) -> bool:
        """Say whether this runs in one of the lanes."""
        try:
            return asyncio.current_task() in self._lanes
        except RuntimeError:  # no loop runs any more
            return False

    def _failed(self, attempt: Attempt, error: BaseException) -> Ending:
        now = attempt.ended = self._clock.now()
        waited = attempt.buffer is not None and attempt.buffer.waited
        if waited and isinstance(error, HandlerTimeoutError):
            # The engine was unavailable and took its time: that is no failure of the handler.
            return attempt.recovery.postponed(attempt, now + RETRIED_AFTER)
        try:
            return attempt.recovery.failed(attempt, error, now)
        except Exception as second:  # noqa: BLE001 (see below)
            # An exception can be made so that nobody can read it: its event must end all the same.
            told = RuntimeError(
                f"{type(error).__qualname__}, which cannot be read ({type(second).__name__})"
            )
            return attempt.recovery.failed(attempt, told, now)

    async def _in_thread(self, attempt: Attempt, work: Work, buffer: Buffer) -> None:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        blocking = BlockingWork(work, buffer, loop)
        handler = attempt.subscription.handler
        call = self._threads.submit(
            context.run, self._called, handler, attempt.hand_over(), blocking
        )
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        answer = await asyncio.wrap_future(call)
        if inspect.isgenerator(answer) or inspect.isasyncgen(answer):
            raise TypeError(f"{handler!r} gave back a generator, of which nothing has run")
        if inspect.isawaitable(answer):  # a plain function that gives back a coroutine
            await answer

    def _called(self, handler: Handler, event: Event, work: BlockingWork) -> object:
        try:
            return handler(event, work)
        except StopIteration as error:  # it would be lost on its way to the event loop
            raise RuntimeError("the handler raised StopIteration") from error
        finally:
            if self._is_child:
                fork.end_child()


def _is_running(attempt: Attempt) -> bool:
    return (
        attempt.started is not None and attempt.ended is None and attempt.subscription.is_coroutine
    )


def _held_back(attempt: Attempt, now: datetime) -> Ending | None:
    """Say what becomes of an attempt that should not be made now."""
    recovery, event_type = attempt.recovery, attempt.subscription.event_type
    if recovery.paused:
        return recovery.handed_back(attempt)
    rule = None if recovery.health.untroubled else recovery.health.down(event_type)
    return None if rule is None else recovery.parked(attempt, rule, now)


async def _within(limit: timedelta, attempt: Attempt, work: Work) -> None:
    """Run a handler that may take so long and no longer; its own time-outs are its own."""
    try:
        async with asyncio.timeout(limit.total_seconds()) as timeout:
            await attempt.subscription.handler(attempt.hand_over(), work)
    except TimeoutError:
        if not timeout.expired():
            raise
        raise HandlerTimeoutError(attempt.subscription.event_type, limit) from None
