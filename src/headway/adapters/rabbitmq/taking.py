"""Consume: what the broker has delivered, until it is asked for, and its acknowledgement.

Deliveries arrive on the I/O thread and are asked for on the event loop. They change hands in
batches: the event loop is woken once for all that has arrived meanwhile.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import pika
from pika.channel import Channel

from headway.adapters.rabbitmq.acknowledging import Acknowledged
from headway.adapters.rabbitmq.io import IoThread
from headway.adapters.rabbitmq.link import Link
from headway.adapters.rabbitmq.sources import Arrived, Source

_LOG = logging.getLogger("headway")
_LOCKED_PAUSE = 1.0


class Taker:
    """Consumes over a connection of its own.

    Args:
        io: The thread.
        parameters: Of the connection.
        alive: Name of a queue that is there for as long as this connection is.
        redeclare: Called on the event loop if a queue has gone.
    """

    def __init__(
        self,
        io: IoThread,
        parameters: pika.ConnectionParameters,
        *,
        alive: str,
        redeclare: Callable[[], None],
    ) -> None:
        self._io = io
        self.alive = alive
        self.beats = 0
        """Messages that came to the queue `alive`."""
        self._redeclare = redeclare
        self._link = Link(io, parameters, purpose="taking", opened=self._opened, lost=self._lost)
        # On the event loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self.news = asyncio.Event()
        self.epoch = 0
        """The number of the present channel: deliveries of another are lost."""
        self._acknowledged = Acknowledged()
        self._windows: dict[str, int] = {}
        # On the I/O thread
        self._channel: Channel | None = None
        self._io_epoch = 0
        self._last_tag = 0
        self._sources: dict[str, Source] = {}
        self._consumers: dict[bytes, Source] = {}
        """Those of the present channel, by their tags."""
        self._known: set[bytes] = set()
        """Those of them that are not being cancelled."""
        self._woken = False
        self._numbers = 0

    # On the event loop

    def start(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._io.call(self._link.connect)

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
            self._io.call(partial(self._widen, source, self._windows[source]))

    async def cancel(self, sources: Sequence[str]) -> list[Arrived]:
        """Have nothing more delivered of some queues; give what has arrived and nobody took."""
        for source in sources:
            self._windows.pop(source, None)
        done = asyncio.Event()
        self._io.call(partial(self._cancel, sources, partial(self._tell, done.set)))
        await done.wait()
        return self.collect(sources, sys.maxsize)

    async def wait(self, seconds: float) -> None:
        """Wait until something has arrived, at most so long."""
        self.news.clear()
        if any(source.arrived for source in self._sources.values()):
            return
        try:
            async with asyncio.timeout(seconds):
                await self.news.wait()
        except TimeoutError:
            pass

    def collect(self, sources: Iterable[str], limit: int) -> list[Arrived]:
        """Give what has arrived, in the order in which it came."""
        waiting = [s for name in sources if (s := self._sources.get(name)) and s.arrived]
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
        self._io.call(partial(self._ack, self.epoch, upto, singles))

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self._acknowledged = Acknowledged()

    def _skip(self, epoch: int, tags: Sequence[int]) -> None:
        if epoch == self.epoch:
            self._acknowledged.settle(tags)

    # On the I/O thread

    def close(self, closed: Callable[[], None]) -> None:
        """Send the acknowledgements that are on their way, and let go."""
        if self._loop is None:
            closed()
        else:
            self._link.close(closed)

    def renew(self, why: str) -> None:
        self._link.renew(why)

    def _tell(self, callback: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(callback)

    def _opened(self, channel: Channel) -> None:
        self._io_epoch += 1
        self._channel = channel
        self._last_tag = 0
        self._consumers, self._known = {}, set()
        channel.connection.hand_on(channel.channel_number, self._known.__contains__, self._arrive)
        channel.add_on_cancel_callback(self._cancelled)
        self._tell(partial(self._begin_epoch, self._io_epoch))
        channel.connection.channel(on_open_callback=self._live)
        for source in self._sources.values():
            window = source.window
            source.windows = {}
            if window:
                self._consume(source, window)

    def _lost(self) -> None:
        self._channel = None
        # What was in hand, or on its way to it, belongs to others from now on.
        self._tell(partial(self._begin_epoch, -self._io_epoch))

    def _widen(self, name: str, window: int) -> None:
        source = self._sources.get(name)
        if source is None:
            # A new dict, because the event loop may be going through the old one.
            source = Source(name)
            self._sources = {**self._sources, name: source}
        more = window - source.window
        if more > 0:
            self._consume(source, more)

    def _consume(self, source: Source, more: int) -> None:
        self._numbers += 1
        tag = f"{source.name}-{self._numbers}"
        source.windows[tag] = more
        channel = self._channel
        if channel is None or not channel.is_open:
            return  # it is done when there is a channel
        channel.basic_qos(prefetch_count=more)
        self._consumers[tag.encode()] = source
        self._known.add(tag.encode())
        channel.basic_consume(source.name, self._arrive_late, consumer_tag=tag)

    def _cancel(self, names: Sequence[str], done: Callable[[], None]) -> None:
        channel = self._channel
        left: set[str] = set()

        def cancelled(frame: pika.frame.Method) -> None:
            left.discard(frame.method.consumer_tag)
            if not left:
                done()

        for name in names:
            source = self._sources.get(name)
            if source is not None:
                left.update(source.windows)
                source.windows = {}
        self._known.difference_update(tag.encode() for tag in left)
        if channel is None or not channel.is_open or not left:
            done()
            return
        # If the channel is lost meanwhile, nobody would answer.
        channel.add_on_close_callback(lambda *_: done())
        for tag in tuple(left):
            channel.basic_cancel(tag, callback=cancelled)

    def _arrive(self, consumer: bytes, tag: int, properties: bytes, body: bytes) -> None:
        if tag != self._last_tag + 1:
            # pika gives back by itself what arrives for a consumer that is being cancelled.
            skipped = range(self._last_tag + 1, tag)
            self._tell(partial(self._skip, self._io_epoch, skipped))
        self._last_tag = tag
        source = self._consumers[consumer]
        source.arrived.append(Arrived(self._io_epoch, tag, source.name, properties, body))
        if not self._woken:
            self._woken = True
            # When all that the socket holds has been read: to wake somebody costs as much as
            # several messages.
            self._io.later(0, self._tell_of_news)

    def _arrive_late(self, *delivery: object) -> None:
        """Never called: known consumers are read by `reading`, others are being cancelled."""
        raise AssertionError(f"pika read a delivery of a known consumer: {delivery}")

    def _tell_of_news(self) -> None:
        self._woken = False
        self._tell(self.news.set)

    def _live(self, channel: Channel) -> None:
        """Have the queue that is there for as long as this worker is; beats come by it.

        Over a channel of its own: if the broker still believes in the connection before this one,
        the queue is locked, and the events must not wait for that.
        """
        connection = channel.connection

        def again() -> None:
            if connection.is_open:
                connection.channel(on_open_callback=self._live)

        channel.add_on_close_callback(lambda *_: self._io.later(_LOCKED_PAUSE, again))
        channel.queue_declare(self.alive, exclusive=True, auto_delete=True)
        channel.basic_consume(self.alive, self._beat, auto_ack=True)

    def _beat(
        self,
        _channel: Channel,
        _method: pika.spec.Basic.Deliver,
        _properties: pika.BasicProperties,
        _body: bytes,
    ) -> None:
        self.beats += 1

    def _cancelled(self, frame: pika.frame.Method) -> None:
        """The broker has ended a consumer: its queue was deleted, or has lost its leader."""
        tag = frame.method.consumer_tag
        for source in self._sources.values():
            if source.windows.pop(tag, None) is not None:
                _LOG.error(
                    "RabbitMQ at %s ended the consumer of %s: the queue is gone; declaring it anew",
                    self._link.address,
                    source.name,
                )
                self._tell(self._redeclare)
                return

    def consume_again(self, name: str) -> None:
        """Consume from a queue that was declared anew."""
        source = self._sources.get(name)
        if source is not None and not source.windows:
            self._consume(source, 1)

    def _ack(self, epoch: int, upto: int | None, singles: Sequence[int]) -> None:
        channel = self._channel
        if channel is None or not channel.is_open or epoch != self._io_epoch:
            return  # what was not acknowledged comes back; its record recognises it
        if upto is not None:
            channel.basic_ack(upto, multiple=True)
        for tag in singles:
            channel.basic_ack(tag)
