"""What the broker has delivered, until it is asked for, and its acknowledgement.

Deliveries arrive on the I/O thread and are asked for on the event loop. They change hands in
batches: the event loop is woken once for all that has arrived meanwhile.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import pika

from headway.adapters.rabbitmq.acknowledging import Acknowledged
from headway.adapters.rabbitmq.consuming import Consumers
from headway.adapters.rabbitmq.io import IoThread
from headway.adapters.rabbitmq.sources import Arrived


class Taker:
    """Consumes over a connection of its own.

    Args:
        io: The thread.
        parameters: Of the connection.
        alive: Name of a queue that is there for as long as this connection is.
        redeclare: Called on the event loop if a queue has gone.
        lost: Called on the event loop when the channel is lost, with its number and with what
            arrived by it and was not asked for.
    """

    def __init__(
        self,
        io: IoThread,
        parameters: pika.ConnectionParameters,
        *,
        alive: str,
        redeclare: Callable[[], None],
        lost: Callable[[int, Sequence[Arrived]], None],
    ) -> None:
        self._io = io
        self._lost = lost
        self.news = asyncio.Event()
        self.epoch = 0
        """The number of the present channel: deliveries of another are lost."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._acknowledged = Acknowledged()
        self._windows: dict[str, int] = {}
        self.consumers = Consumers(
            io,
            parameters,
            alive=alive,
            began=lambda epoch: self._tell(partial(self._begin_epoch, epoch)),
            came=lambda: self._tell(self.news.set),
            gone=lambda: self._tell(redeclare),
        )

    def start(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._io.call(self.consumers.link.connect)

    def move_here(self) -> None:
        """Have what arrives told to the event loop that runs now: the other one is blocked."""
        self._loop = asyncio.get_running_loop()

    def window(self, source: str) -> int:
        """Say how many of a queue may be here, unacknowledged."""
        return self._windows.get(source, 0)

    def sources(self) -> list[str]:
        """Name the queues that are consumed from."""
        return list(self._windows)

    def want(self, source: str, window: int) -> None:
        """Have at least so many of a queue delivered ahead of their acknowledgement."""
        present = self._windows.get(source, 0)
        if present < window:
            # Every growth is one consumer more: so there are never many.
            self._windows[source] = max(window, 2 * present)
            self._io.call(partial(self.consumers.widen, source, self._windows[source]))

    async def cancel(self, sources: Sequence[str]) -> list[Arrived]:
        """Have nothing more delivered of some queues; give what has arrived and nobody took."""
        for source in sources:
            self._windows.pop(source, None)
        done = asyncio.Event()
        self._io.call(partial(self.consumers.cancel, sources, partial(self._tell, done.set)))
        await done.wait()
        return self.collect(sources, sys.maxsize)

    async def wait(self, sources: Iterable[str], seconds: float) -> None:
        """Wait until something of these queues may have arrived, at most so long."""
        self.news.clear()
        # What has arrived of others may stay there for long, while their queues are closed.
        arrived = self.consumers.sources
        if any(name in arrived and arrived[name].arrived for name in sources):
            return
        try:
            async with asyncio.timeout(seconds):
                await self.news.wait()
        except TimeoutError:
            pass

    def collect(self, sources: Iterable[str], limit: int) -> list[Arrived]:
        """Give what has arrived, in the order in which it came."""
        waiting = [s for name in sources if (s := self.consumers.sources.get(name)) and s.arrived]
        found: list[Arrived] = []
        if len(waiting) == 1:
            take = waiting[0].arrived.popleft
            count = min(limit, len(waiting[0].arrived))
            return [one for _ in range(count) if (one := take()).epoch == self.epoch]
        while waiting and len(found) < limit:
            first = min(waiting, key=lambda source: source.age)
            one = first.arrived.popleft()
            if not first.arrived:
                waiting.remove(first)
            if one.epoch == self.epoch:
                found.append(one)
        return found

    def is_ours(self, epoch: int, tag: int) -> bool:
        return epoch == self.epoch and self._acknowledged.is_open(tag)

    def acknowledge(self, tags: Sequence[int]) -> None:
        """Acknowledge open deliveries of the present channel."""
        upto, singles = self._acknowledged.settle(tags)
        self._io.call(partial(self.consumers.acknowledge, self.epoch, upto, singles))

    def set_aside(self, tags: Sequence[int]) -> None:
        """Have open deliveries put into the failed queue by the broker, as they are."""
        self._acknowledged.settle(tags)
        self._io.call(partial(self.consumers.set_aside, self.epoch, tags))

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._acknowledged = Acknowledged()
        if epoch < 0:
            sources = self.consumers.sources.values()
            arrived = [one for source in sources for one in tuple(source.arrived)]
            self._lost(-epoch, [one for one in arrived if one.epoch == -epoch])

    # On the I/O thread

    def close(self, closed: Callable[[], None]) -> None:
        """Send the acknowledgements that are on their way, and let go."""
        if self._loop is None:
            closed()
        else:
            self.consumers.link.close(closed)

    def _tell(self, callback: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(callback)
