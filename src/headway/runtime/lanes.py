"""Lanes: where handlers run.

A lane is a task that runs one handler after another. A handler that never suspends costs no task
and no turn of the event loop; one that waits holds up its own lane only.
"""

import asyncio
import contextvars
import inspect
import logging
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.thread import _threads_queues
from dataclasses import replace
from datetime import datetime, timedelta
from types import FrameType
from typing import Any, cast

from headway.core.errors import DocumentNotFoundError, HandlerTimeoutError, TooManyHopsError
from headway.core.event import Event, new_event_id
from headway.core.origin import origin, place, users_frame, waits_at
from headway.core.showing import shown
from headway.core.writes import target
from headway.ports import fork
from headway.ports.bus import Delivery
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.runtime.attempt import Attempt, Ending
from headway.runtime.blocking import BlockingWork
from headway.runtime.collection_names import CollectionNames
from headway.runtime.mistakes import name_cure
from headway.runtime.persistence import RETRIED_AFTER, Persistent
from headway.runtime.service import Handler, Subscription
from headway.runtime.work import Around, Buffer, Work

_TURN = timedelta(milliseconds=2)
"""How long handlers that never wait may run in a row: what has ended meanwhile waits for its
commit, and what has failed to be put off."""
_LAST_STEPS = timedelta(seconds=5)
"""How long handlers may take to end after they were cancelled."""
_LOG = logging.getLogger("headway")


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
        names: CollectionNames | None,
        ended: Callable[[Ending], None],
        broken: Callable[[BaseException], None],
    ) -> None:
        self._concurrency = concurrency
        self._join = join
        self._around = Around(
            engine.documents,
            clock.now,
            self._new_id,
            persistent.until_available,
            names=names,
        )
        self._names = names
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
        self._abandoned: set[asyncio.Task[None]] = set()
        """Lanes whose handlers did not end although they were cancelled."""
        self._ignored: set[tuple[str, str]] = set()
        """Subscriptions whose handlers gave back something, and were told that it is ignored."""
        self._long_chains: set[tuple[str, str]] = set()
        """Subscriptions whose handlers were warned of long chains of events."""
        self._misnamed: set[str] = set()
        """Collections that were warned of, because there is no document in them."""
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
        self._around = replace(self._around, loop=asyncio.get_running_loop())
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

    def running(self) -> dict[Attempt, asyncio.Task[None]]:
        """Give the attempts whose handlers run, with their lanes; from any thread."""
        found = {}
        for lane in tuple(self._lanes):
            frame = getattr(lane.get_coro(), "cr_frame", None)
            attempt = None if frame is None else frame.f_locals.get("attempt")
            if isinstance(attempt, Attempt) and attempt.started is not None and not attempt.ended:
                found[attempt] = lane
        return found

    def find(self, delivery: Delivery) -> Attempt | None:
        """Give the attempt at the same event that waits for a lane, or runs in one."""
        running = (
            frame.f_locals.get("attempt")
            for lane in self._lanes
            if (frame := getattr(lane.get_coro(), "cr_frame", None)) is not None
        )
        at_work = (
            each
            for each in running
            if isinstance(each, Attempt) and each.started is not None and each.ended is None
        )
        return next((each for each in (*self._ready, *at_work) if each.is_at(delivery)), None)

    def line_of(self, attempt: Attempt, lane: asyncio.Task[None]) -> str:
        """Name the line of the user's at which a handler is; from any thread."""
        if attempt.subscription.is_coroutine:
            return waits_at(lane.get_coro())
        for innermost in sys._current_frames().values():  # noqa: SLF001 (the only way to another thread)
            frame: FrameType | None = innermost
            while frame is not None and frame.f_code is not Lanes._called.__code__:
                frame = frame.f_back
            work = None if frame is None else frame.f_locals.get("work")
            if work is not None and getattr(work, "_buffer", None) is attempt.buffer:
                found = users_frame(innermost) or innermost
                return place(found.f_code, found.f_lineno)
        return "an unknown line"

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
    def handlers_left(self) -> int:
        """How many handlers still run although their events were handed back."""
        return sum(call.running() for call in tuple(self._calls)) + len(self._abandoned)

    async def end(self) -> None:
        """End the lanes; a handler that still runs is cancelled, and its event handed back."""
        self._cancelling = True
        for lane in self._lanes:
            lane.cancel()
        ended: asyncio.Future[Any] = asyncio.gather(*self._lanes, return_exceptions=True)
        over: asyncio.Future[Any] = asyncio.create_task(self._clock.wait(_LAST_STEPS))
        await asyncio.wait({ended, over}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not ended.done():
            self._abandon()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _abandon(self) -> None:
        """Hand back the events of handlers that caught their cancellation and go on."""
        for attempt, lane in self.running().items():
            _LOG.error(
                "Handler %s did not end when it was cancelled, at %s: its event %r was handed "
                "back. Let asyncio.CancelledError leave the handler.",
                origin(attempt.subscription.handler),
                self.line_of(attempt, lane),
                attempt.event_id,
            )
            self._abandoned.add(lane)
            if attempt.buffer is not None:
                attempt.buffer.over = True
            self._ended(attempt.recovery.handed_back(attempt))

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
            self._broken(error)
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
                if self._cancelling and asyncio.current_task() in self._abandoned:
                    return  # its event was handed back meanwhile
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

    async def _run(  # noqa: C901, PLR0912 (run for every event: calls cost time)
        self, attempt: Attempt, now: datetime
    ) -> Ending:
        recovery, subscription = attempt.recovery, attempt.subscription
        held_back = None if attempt.is_probe else _held_back(attempt, now)
        if held_back is not None:
            return held_back
        attempt.started, attempt.ended = now, None
        service = recovery.service
        buffer = attempt.buffer = Buffer(
            attempt.key,
            self._around,
            service.lifecycles_by_name,
            service.announced,
            subscription,
            attempt.documents,
            attempt.travel.hops,
        )
        try:
            ids = () if subscription.lifecycle is None else attempt.document_ids
            work = Work(buffer, attempt.travel.attempt, ids)
            try:
                if not subscription.is_coroutine:
                    answer = await self._in_thread(attempt, work, buffer)
                elif subscription.timeout is None:
                    answer = await subscription.handler(attempt.hand_over(), work)
                else:
                    answer = await _within(subscription.timeout, attempt, work)
            except Exception as error:
                if buffer.unknown:
                    await self._check_names(buffer, subscription)
                if isinstance(error, DocumentNotFoundError):
                    await self._name_meant(error)
                raise
            if buffer.unknown:
                await self._check_names(buffer, subscription)
            if answer is not None or buffer.unawaited or self._cancelling:
                self._check_return(subscription, buffer, answer)
            if buffer.hops >= service.warn_hops and buffer.outgoing:
                self._check_hops(attempt)
            if attempt.missing:
                await self._join_late(attempt, buffer)
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
        name_cure(error, is_plain=not attempt.subscription.is_coroutine)
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
            try:
                return attempt.recovery.failed(attempt, told, now)
            except Exception as third:  # noqa: BLE001 (a rule or a name of the user's own may raise)
                return attempt.recovery.broken(attempt.delivery, third, now)

    def _check_return(self, subscription: Subscription, buffer: Buffer, answer: object) -> None:
        """Refuse a return that leaves work undone; a value that is returned is ignored."""
        if self._cancelling and _is_cancelled():  # it caught that, and may have stopped half-way
            raise asyncio.CancelledError
        if buffer.unawaited:
            raise buffer.not_awaited(subscription.handler)
        if answer is None:
            return
        handler = origin(subscription.handler)
        if inspect.isgenerator(answer) or inspect.isasyncgen(answer) or inspect.isawaitable(answer):
            if inspect.iscoroutine(answer) or inspect.isgenerator(answer):
                answer.close()
            raise TypeError(
                f"Invalid handler {handler}: it returned a {type(answer).__name__}, of which "
                "nothing has run. Await it, or use up the generator, before you return."
            )
        name = subscription.queue, subscription.event_type
        if name not in self._ignored:
            self._ignored.add(name)
            _LOG.warning(
                "Handler %s of %s returned a value of type %s, which is ignored: an event whose "
                "handler returns is done. Raise an exception to fail it, or publish the value.",
                handler,
                subscription.event_type,
                type(answer).__name__,
            )

    def _check_hops(self, attempt: Attempt) -> None:
        """Refuse what a handler publishes at the end of a chain; warn of a long chain once."""
        subscription, service = attempt.subscription, attempt.recovery.service
        published = {each.event_type for each in attempt.buffer.outgoing} if attempt.buffer else {}
        types, hops = ", ".join(map(shown, sorted(published))), attempt.travel.hops
        if service.max_hops is not None and hops >= service.max_hops:
            raise TooManyHopsError(origin(subscription.handler), types, hops)
        name = subscription.queue, subscription.event_type
        if name not in self._long_chains:
            self._long_chains.add(name)
            _LOG.warning(
                "Handler %s of %s publishes %s after %d handlers that published one after another. "
                "If this goes round in circles, end it. If such long chains are meant, set "
                "Service(max_hops=) higher, or to None: after %s the event becomes a dead letter.",
                origin(subscription.handler),
                subscription.event_type,
                types,
                hops,
                service.max_hops,
            )

    async def _join_late(self, attempt: Attempt, buffer: Buffer) -> None:
        """Begin with what came late; note what did not, or warn once of a mistyped collection."""
        await self._join(attempt)
        subscription = attempt.subscription
        collection = "" if subscription.lifecycle is None else subscription.lifecycle.collection
        written = {target(write) for write in buffer.writes if write.collection == collection}
        attempt.unfound = tuple(one for one in attempt.missing if one not in written)
        if attempt.missing != attempt.ids or written:
            return
        if collection in self._misnamed:
            attempt.unfound = ()
        elif near := await self._meant(collection):
            self._misnamed.add(collection)
            attempt.unfound = ()
            _LOG.warning(
                "Handler %s of %s succeeded, and no document got its status: there is no document "
                "in %s at all, which documents= names. Did you mean %s?",
                origin(subscription.handler),
                subscription.event_type,
                shown(collection),
                shown(near),
            )

    async def _name_meant(self, error: DocumentNotFoundError) -> None:
        if error.missing and not self._is_child:
            error.near = await self._meant(error.collection)

    async def _check_names(self, buffer: Buffer, subscription: Subscription) -> None:
        if self._names is not None and buffer.unknown and not self._is_child:
            await self._names.check(buffer.unknown, subscription)

    async def _meant(self, collection: str) -> str:
        return "" if self._names is None else await self._names.meant(collection)

    async def _in_thread(self, attempt: Attempt, work: Work, buffer: Buffer) -> object:
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
        if inspect.isawaitable(answer):  # a plain function that gives back a coroutine
            return await answer
        return answer

    def _called(self, handler: Handler, event: Event, work: BlockingWork) -> object:
        try:
            return handler(event, work)
        except (StopIteration, GeneratorExit) as error:  # they mean more in the event loop
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error
        finally:
            if self._is_child:
                fork.end_child()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _held_back(attempt: Attempt, now: datetime) -> Ending | None:
    """Say what becomes of an attempt that should not be made now."""
    recovery, event_type = attempt.recovery, attempt.subscription.event_type
    if recovery.floods[attempt.subscription.queue].paused_since is not None:
        return recovery.handed_back(attempt)
    rule = None if recovery.health.untroubled else recovery.health.down(event_type)
    return None if rule is None else recovery.parked(attempt, rule, now)


async def _within(limit: timedelta, attempt: Attempt, work: Work) -> object:
    """Run a handler that may take so long and no longer; its own time-outs are its own.

    One that catches its cancellation and returns has not done all of its work.
    """
    answer = None
    try:
        async with asyncio.timeout(limit.total_seconds()) as timeout:
            answer = await attempt.subscription.handler(attempt.hand_over(), work)
    except TimeoutError:
        if not timeout.expired():
            raise
    if timeout.expired():
        raise HandlerTimeoutError(attempt.subscription.event_type, limit)
    return answer
