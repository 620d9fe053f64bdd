"""Name what blocks the event loop, and end the process if that cannot stop; name slow handlers.

A coroutine that never waits (a sleep of the operating system, a long computation) keeps every other
handler from running, and the order to stop from being heard. A thread asks the loop for an answer
while events are in hand. It counts its own rounds instead of asking a clock: a machine that slept
blocks nothing.

A handler that only takes long, in a thread or because of what it awaits, is named by the loop.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import FrameType

from headway.core.event import read_data
from headway.core.origin import origin, users_frame
from headway.core.showing import described
from headway.ports.bus import Delivery
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.runtime import failed_event
from headway.runtime.attempt import Attempt
from headway.runtime.lanes import Lanes
from headway.runtime.lease_keeping import LeaseKeeper
from headway.runtime.leaving import Leaving
from headway.runtime.recover import Recovery
from headway.runtime.service import Subscription

_EVERY = timedelta(milliseconds=250)
_LONG = timedelta(seconds=1)
"""Without an answer for longer than this, the loop is blocked."""
_SAID_FOR = timedelta(minutes=1)
"""How long a handler that was named is not named again."""
_LAST_WORDS = timedelta(seconds=1)
_LAST_DEED = timedelta(seconds=5)
"""How long handing back may take before the process ends all the same."""
_FUNCTIONS = {
    Subscription.name_work.__code__: "dedup",
    Subscription.document_ids.__code__: "documents",
    read_data.__code__: "data",
    failed_event._in_own_words.__code__: "failed_data",  # noqa: SLF001 (only its frame is meant)
}
"""Where functions of the user's run that are no handlers, and the arguments that they came by."""
_LOG = logging.getLogger("headway")


@dataclass(frozen=True, slots=True)
class Blocking:
    """What the event loop is doing instead of answering."""

    who: str
    where: str
    attempts: Sequence[Attempt] = ()
    """Of the handler that blocks; if a task of its own does, of all that run."""
    delivery: Delivery | None = None
    """What was being read, where the handler has not started."""

    @property
    def deliveries(self) -> Sequence[Delivery]:
        """What comes back counted, if it still blocks when the process has to end."""
        reading = [] if self.delivery is None else [self.delivery]
        return [*reading, *(each.delivery for each in self.attempts)]

    @property
    def events(self) -> str:
        """Name the events that it may be about."""
        reading = [] if self.delivery is None else [self.delivery.travel.operation or "?"]
        ids = [*reading, *(each.event_id for each in self.attempts)]
        return f" with event {' or '.join(map(repr, ids))}" if ids else ""


class Watchdog:
    """Watches the event loop of one worker.

    Args:
        lanes: Where handlers run.
        is_busy: Says whether events are in hand, from any thread.
        leases: What documents are in hand.
        engine: What is handed back to.
        leaving: Releases documents.
        grace: How long handlers may go on after the order to stop.
        end: Ends the process.
    """

    def __init__(
        self,
        lanes: Lanes,
        is_busy: Callable[[], bool],
        leases: LeaseKeeper,
        engine: Engine,
        leaving: Callable[..., Leaving],
        *,
        grace: timedelta,
        end: Callable[[], None],
    ) -> None:
        self._lanes = lanes
        self._is_busy = is_busy
        self._leases = leases
        self._engine = engine
        self._leaving = leaving
        self._grace = grace
        self._end = end
        self._over = threading.Event()
        self._ordered = threading.Event()
        self._waits = False
        """For an answer of the loop."""
        self._unanswered = timedelta()
        self._since_order = -_EVERY  # the first round is not a whole one
        self._named: dict[str, timedelta] = {}
        self._time = timedelta()

    def told_to_stop(self) -> None:
        """Note the order to stop, in whatever thread it was heard."""
        self._ordered.set()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch the running loop inside the block."""
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        watch = threading.Thread(
            target=self._watch, args=(loop, thread), name="headway-watchdog", daemon=True
        )
        watch.start()
        try:
            yield
        finally:
            self._over.set()
            await asyncio.to_thread(watch.join)  # if it is handing back, it ends the process

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._over.wait(_EVERY.total_seconds()):
            self._time += _EVERY
            if self._ordered.is_set():
                self._since_order += _EVERY
            if not self._waits:
                self._unanswered = timedelta()
                if self._is_busy() or self._ordered.is_set():
                    self._waits = True
                    loop.call_soon_threadsafe(self._answer)
                continue
            self._unanswered += _EVERY
            if self._unanswered > _LONG:
                blocking = self._look(thread)
                if self._ordered.is_set() and self._since_order >= self._grace:
                    self._hand_back_and_end(blocking)
                    return
                self._name(blocking)

    def _answer(self) -> None:
        self._waits = False

    def _look(self, thread: int) -> Blocking:
        frame = sys._current_frames().get(thread)  # noqa: SLF001 (the only way to another thread)
        attempt = self._lanes.of_frame(frame)
        where = _place(frame)
        function, delivery = _function(frame, attempt)
        if function is not None:
            return Blocking(function, where, [] if attempt is None else [attempt], delivery)
        if attempt is not None:
            return Blocking(_handler(attempt), where, [attempt])
        running = [each for each in self._lanes.running() if each.subscription.is_coroutine]
        who = " or ".join(sorted({_handler(each) for each in running}))
        return Blocking(who or "The worker itself", where, running)

    def _name(self, blocking: Blocking) -> None:
        last = self._named.get(blocking.who)
        if last is not None and self._time - last < _SAID_FOR:
            self._named[blocking.who] = self._time  # also while it goes on
            return
        self._named[blocking.who] = self._time
        _bounded(
            lambda: _LOG.warning(
                "%s has blocked the event loop for %.1f s at %s%s: every other event waits. Use "
                "await, or make the handler a plain function, which runs in a thread",
                blocking.who,
                self._unanswered.total_seconds(),
                blocking.where,
                blocking.events,
            ),
            _LAST_WORDS,
        )

    def _hand_back_and_end(self, blocking: Blocking) -> None:
        """Hand back all but the events of the handler that blocks, which come back counted."""
        handed_back = _bounded(lambda: asyncio.run(self._hand_back(blocking)), _LAST_DEED)
        _bounded(
            lambda: _LOG.error(
                "%s still blocks the event loop at %s%s, %.0f s after the order to stop: the "
                "process ends. Its event comes back as after a crash; %s",
                blocking.who,
                blocking.where,
                blocking.events,
                self._since_order.total_seconds(),
                "all others were handed back"
                if handed_back
                else "so do all others, because the engine did not take them back in time",
            ),
            _LAST_WORDS,
        )
        self._end()

    async def _hand_back(self, blocking: Blocking) -> None:
        others = self._leases.held(but=blocking.attempts)
        if others:
            async with self._engine.documents_aside() as documents:
                endings = [each.recovery.handed_back(each) for each in others]
                await self._leaving(documents).leave(endings)
        await self._engine.bus.hand_back_all(blocking.deliveries)


def _bounded(deed: Callable[[], object], patience: timedelta) -> bool:
    """Do something in a thread, and wait so long; the blocked one may hold a lock that it needs."""
    done = threading.Event()

    def do() -> None:
        try:
            deed()
            done.set()
        except Exception as error:  # noqa: BLE001 (whatever a driver raises: the process ends)
            _LOG.warning("Could not hand back events: %s", described(error))

    thread = threading.Thread(target=do, name="headway-watchdog-deed", daemon=True)
    thread.start()
    thread.join(patience.total_seconds())
    return done.is_set()


class SlowHandlers:
    """Names handlers that run for longer than `Service(slow_after=...)`, then at growing intervals.

    Nothing is noted when a handler starts: whatever starts after a look cannot be slow before the
    shortest limit has passed, so an idle worker looks as seldom as that.
    """

    def __init__(self, lanes: Lanes, limits: Sequence[timedelta | None], clock: Clock) -> None:
        self._lanes = lanes
        self._shortest = min((each for each in limits if each is not None), default=None)
        self._clock = clock
        self._next: dict[tuple[Attempt, datetime], timedelta] = {}
        """How long runs that are going on may take until they are named."""

    async def run(self) -> None:
        """Look until cancelled."""
        if self._shortest is None:
            await asyncio.Event().wait()
        while True:
            await self._clock.wait(self._look())

    def _look(self) -> timedelta:
        """Name what is slow; say when to look again."""
        assert self._shortest is not None  # noqa: S101 (the caller looked)
        now, wait = self._clock.now(), self._shortest
        after: dict[tuple[Attempt, datetime], timedelta] = {}
        for attempt, lane in self._lanes.running().items():
            started, limit = attempt.started, attempt.recovery.service.slow_after
            if started is None or limit is None:
                continue
            ran, patience = now - started, self._next.get((attempt, started), limit)
            if ran >= patience:
                self._name(attempt, self._lanes.line_of(attempt, lane), ran)
                while patience <= ran:
                    patience *= 2
            after[attempt, started] = patience
            wait = min(wait, patience - ran)
        self._next = after
        return wait

    def _name(self, attempt: Attempt, where: str, ran: timedelta) -> None:
        _LOG.warning(
            "%s has run for %.0f s with event %r (attempt %d) and is at %s. If it hangs, set "
            "timeout=, or limit what it waits for. If it is meant to take so long, set "
            "Service(slow_after=).",
            _handler(attempt),
            ran.total_seconds(),
            attempt.event_id,
            attempt.travel.attempt,
            where,
        )


def _handler(attempt: Attempt) -> str:
    one = attempt.subscription
    return f"Handler {origin(one.handler)} ({one.service}, {one.event_type})"


def _function(
    frame: FrameType | None, attempt: Attempt | None
) -> tuple[str | None, Delivery | None]:
    """Name a function that is no handler, such as that of `dedup=`; and what it is called for."""
    argument = None
    subscription = None if attempt is None else attempt.subscription
    while frame is not None:
        argument = argument or _FUNCTIONS.get(frame.f_code)
        if frame.f_code is Recovery.read.__code__:
            subscription = frame.f_locals.get("subscription")
            return _named(argument, subscription), frame.f_locals.get("delivery")
        frame = frame.f_back
    return _named(argument, subscription), None


def _named(argument: str | None, subscription: Subscription | None) -> str | None:
    if argument is None or subscription is None:
        return None
    given = {
        "dedup": subscription.dedup,
        "documents": subscription.documents and subscription.documents[1],
        "failed_data": subscription.failed_data,
    }.get(argument)
    which = f" {origin(given)}" if callable(given) else ""
    return f"{argument}={which} of {subscription.event_type} ({subscription.service})"


def _place(frame: FrameType | None) -> str:
    """Give file and line of the innermost frame that is no library's."""
    found = users_frame(frame)
    return f"{found.f_code.co_filename}:{found.f_lineno}" if found else "an unknown place"
