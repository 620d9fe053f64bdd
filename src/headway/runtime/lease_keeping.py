"""Leases on the documents that a worker has in hand, renewed for as long as it lives.

In a thread with an event loop of its own, and over connections of its own: neither a handler that
blocks nor a store that is busy with commits may make a living worker look dead. Whoever loses a
lease all the same cannot commit: the status of its documents is set only where they still bear its
token.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta

from headway.core.showing import described
from headway.ports.bus import Bus, Delivery
from headway.ports.clock import Clock
from headway.ports.documents import Documents
from headway.runtime.attempt import Attempt
from headway.runtime.forked_loop import ForkedLoop

Aside = Callable[[], AbstractAsyncContextManager[Documents]]
"""Gives the documents once more, for another event loop."""

_BEATS = 3
"""In one lease: two of them may come too late."""
_LOG = logging.getLogger("headway")


def holder(token: str) -> tuple[str, str]:
    """Read from the token of a lease which worker has it: as the bus knows it, and its name."""
    worker, _, rest = token.partition("/")
    return worker, rest.partition("/")[0] or token


class LeaseKeeper:
    """Knows which documents are in hand, and renews their leases."""

    def __init__(
        self, name: str, bus: Bus, lease: timedelta | None, clock: Clock, aside: Aside
    ) -> None:
        self._name = name.replace("/", "-")
        self._bus = bus
        self._lease = lease
        """The shortest of all that there are; None: there are none."""
        self._clock = clock
        self._aside = aside
        self._held: dict[int, Attempt] = {}
        self._lock = threading.Lock()
        self.is_waited_for = False
        """Events of this worker wait for leased documents."""
        self.released = asyncio.Event()
        """Set when a lease is released that they may wait for."""

    def token(self, delivery: Delivery, operation: str) -> str:
        """Name the leases of one delivery in this worker, as `holder` reads it.

        A bus that lost its connection may give an event a second time while it is still in hand.
        No two deliveries that are in hand have the same id.
        """
        return f"{self._bus.worker}/{self._name}/{operation}/{id(delivery):x}"

    def keep(self, attempt: Attempt) -> None:
        """Renew the leases of an attempt until it is let go."""
        if attempt.token and attempt.documents:
            with self._lock:
                self._held[id(attempt)] = attempt

    def let_go(self, attempt: Attempt) -> None:
        """Renew them no longer."""
        if attempt.token:
            with self._lock:
                self._held.pop(id(attempt), None)
            if self.is_waited_for:
                self.released.set()

    def held(self, but: Collection[Attempt] = ()) -> Sequence[Attempt]:
        """Give the attempts whose leases are renewed; from any thread."""
        with self._lock:
            return [each for each in self._held.values() if each not in but]

    @asynccontextmanager
    async def keeping(self, *, in_thread: bool) -> AsyncIterator[None]:
        """Renew all the time inside the block; without a thread, only where time is virtual."""
        if self._lease is None:
            yield
        elif in_thread:
            async with _thread(self._run):
                yield
        else:
            task = asyncio.create_task(self._run())
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        assert self._lease is not None  # noqa: S101 (the caller looked)
        async with self._aside() as documents:
            while True:
                await self._clock.wait(self._lease / _BEATS)
                await self._beat(documents)

    async def _beat(self, documents: Documents) -> None:
        for (collection, lease), its in self._tokens().items():
            try:
                renewed = await documents.renew(collection, its, self._clock.now() + lease)
            # Whatever a driver raises: the next beat tries again, and whoever loses a lease
            # meanwhile is refused at the commit.
            except Exception as error:  # noqa: BLE001
                _LOG.warning("Could not renew leases on %s: %s", collection, described(error))
                continue
            # What has ended, or is just being committed, may bear no lease any more.
            running = self._tokens(running=True).get((collection, lease), {})
            held = len(its.items() & running.items())
            if renewed < held:
                _LOG.warning(
                    "Leases on %s: %d of %d were not renewed, because another program keeps the "
                    "documents locked or somebody else has them by now; the next beat tries again",
                    collection,
                    held - renewed,
                    held,
                )

    def _tokens(self, *, running: bool = False) -> dict[tuple[str, timedelta], dict[str, str]]:
        """Give what is in hand, by collection and lease; or only that whose handler still runs."""
        with self._lock:
            held = [each for each in self._held.values() if each.ended is None or not running]
        tokens: dict[tuple[str, timedelta], dict[str, str]] = {}
        for attempt in held:
            lifecycle = attempt.subscription.lifecycle
            if lifecycle is not None and lifecycle.lease is not None:
                together = tokens.setdefault((lifecycle.collection, lifecycle.lease), {})
                together.update(dict.fromkeys(attempt.documents, attempt.token))
        return tokens


@asynccontextmanager
async def _thread(run: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    """Have a coroutine run in a thread of its own inside the block."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(run())
    own = ForkedLoop(loop)

    def host() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=host, name="headway-leases", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(task.cancel)
        await asyncio.to_thread(thread.join)
        del own
