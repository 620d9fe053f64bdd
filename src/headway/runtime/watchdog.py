"""A thread that names what blocks the event loop, and ends the process if that cannot stop.

A coroutine that never waits (a sleep of the operating system, a long computation) keeps every other
handler from running, and the order to stop from being heard. The thread asks the loop for an answer
while handlers run. It counts its own rounds instead of asking a clock: a machine that slept blocks
nothing.
"""

import asyncio
import logging
import sys
import sysconfig
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType

from headway.ports.engine import Engine
from headway.runtime.attempt import Attempt
from headway.runtime.lanes import Lanes
from headway.runtime.lease_keeping import LeaseKeeper
from headway.runtime.leaving import Leaving

_EVERY = timedelta(milliseconds=250)
_LONG = timedelta(seconds=1)
"""Without an answer for longer than this, the loop is blocked."""
_SAID_FOR = timedelta(minutes=1)
"""How long a handler that was named is not named again."""
_LAST_WORDS = timedelta(seconds=1)
_LAST_DEED = timedelta(seconds=5)
"""How long handing back may take before the process ends all the same."""
_LIBRARIES = tuple(
    path for name in ("stdlib", "purelib", "platlib") if (path := sysconfig.get_path(name))
)
_LOG = logging.getLogger("headway")


@dataclass(frozen=True, slots=True)
class Blocking:
    """What the event loop is doing instead of answering."""

    who: str
    where: str
    attempts: Sequence[Attempt]
    """Of the handler that blocks; if a task of its own does, of all that run."""


class Watchdog:
    """Watches the event loop of one worker.

    Args:
        lanes: Where handlers run.
        leases: What documents are in hand.
        engine: What is handed back to.
        leaving: Releases documents.
        grace: How long handlers may go on after the order to stop.
        end: Ends the process.
    """

    def __init__(
        self,
        lanes: Lanes,
        leases: LeaseKeeper,
        engine: Engine,
        leaving: Callable[..., Leaving],
        *,
        grace: timedelta,
        end: Callable[[], None],
    ) -> None:
        self._lanes = lanes
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
                if self._lanes.load or self._ordered.is_set():
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
        if attempt is not None:
            return Blocking(_handler(attempt), where, [attempt])
        running = self._lanes.running()
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
                "%s has blocked the event loop for %.1fs at %s: every other event waits. Use "
                "await, or make the handler a plain function, which runs in a thread",
                blocking.who,
                self._unanswered.total_seconds(),
                blocking.where,
            ),
            _LAST_WORDS,
        )

    def _hand_back_and_end(self, blocking: Blocking) -> None:
        """Hand back all but the events of the handler that blocks, which come back counted."""
        handed_back = _bounded(lambda: asyncio.run(self._hand_back(blocking)), _LAST_DEED)
        _bounded(
            lambda: _LOG.error(
                "%s still blocks the event loop at %s, %.0fs after the order to stop: the process "
                "ends. Its event comes back as after a crash; %s",
                blocking.who,
                blocking.where,
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
        await self._engine.bus.hand_back_all([each.delivery for each in blocking.attempts])


def _bounded(deed: Callable[[], object], patience: timedelta) -> bool:
    """Do something in a thread, and wait so long; the blocked one may hold a lock that it needs."""
    done = threading.Event()

    def do() -> None:
        try:
            deed()
            done.set()
        except Exception as error:  # noqa: BLE001 (whatever a driver raises: the process ends)
            _LOG.warning("Handing back failed: %s: %s", type(error).__name__, error)

    thread = threading.Thread(target=do, name="headway-watchdog-deed", daemon=True)
    thread.start()
    thread.join(patience.total_seconds())
    return done.is_set()


def _handler(attempt: Attempt) -> str:
    handler = attempt.subscription.handler
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return f"Handler {attempt.subscription.service}.{name} ({attempt.subscription.event_type})"


def _place(frame: FrameType | None) -> str:
    """Give file and line of the innermost frame that is no library's."""
    innermost = frame
    while frame is not None and frame.f_code.co_filename.startswith((*_LIBRARIES, "<")):
        frame = frame.f_back
    found = frame or innermost
    return f"{found.f_code.co_filename}:{found.f_lineno}" if found else "an unknown place"
