"""Consume: the channel over which events come, and the consumers on it.

Everything here runs on the I/O thread, except where it says otherwise.
"""

import logging
from collections.abc import Callable, Sequence

import pika
from pika.channel import Channel

from headway.adapters.rabbitmq.alive import Alive
from headway.adapters.rabbitmq.arrivals import Arrivals
from headway.adapters.rabbitmq.asides import Asides
from headway.adapters.rabbitmq.frames import acknowledgement_of
from headway.adapters.rabbitmq.io import IoThread
from headway.adapters.rabbitmq.link import Link
from headway.adapters.rabbitmq.refusing import FORBIDDEN, NOT_FOUND, PRECONDITION, code_of
from headway.adapters.rabbitmq.sources import Source
from headway.core.secrets import hidden

_LOG = logging.getLogger("headway")


class Consumers:
    """Keeps as many consumers as are wanted, whatever becomes of connections and queues.

    Args:
        io: The thread.
        parameters: Of the connection.
        alive: Name of a queue that is there for as long as this connection is.
        began: Called with the number of every new channel, and with minus that when it is lost.
        came: Called when something has arrived, once for all that the socket held.
        gone: Called if a queue has gone.
    """

    def __init__(
        self,
        io: IoThread,
        parameters: pika.ConnectionParameters,
        *,
        alive: str,
        began: Callable[[int], None],
        came: Callable[[], None],
        gone: Callable[[], None],
    ) -> None:
        self._io = io
        self.alive = Alive(io, alive)
        self.link = Link(io, parameters, purpose="taking", opened=self._opened, lost=self._lost)
        self._began = began
        self._came = came
        self._gone = gone
        self.channel: Channel | None = None
        self.sources: dict[str, Source] = {}
        """What arrives is taken out of these on the event loop."""
        self._arrivals = Arrivals(0, self._come)
        self._asked: dict[str, Source] = {}
        """Consumers that the broker has not confirmed yet, in the order in which it answers."""
        self._asides = Asides(io, self._consume_wanted)
        self._cancelling: list[Callable[[], None]] = []
        """Whom to tell if the channel is lost before their consumers are cancelled."""
        self._numbers = 0

    @property
    def is_complete(self) -> bool:
        """Whatever comes into the queues that are asked for would be delivered here.

        From any thread.
        """
        return self.channel is not None and not self._asked and not self._asides.names

    def _opened(self, channel: Channel) -> None:
        arrivals = Arrivals(self._arrivals.epoch + 1, self._come)
        self.channel, self._arrivals = channel, arrivals
        connection = channel.connection
        connection.hand_on(channel.channel_number, arrivals.known.__contains__, arrivals.arrive)
        channel.add_on_cancel_callback(self._cancelled)
        self._began(arrivals.epoch)
        self.alive.keep(connection)
        self._asides.keep(connection)
        for source in self.sources.values():
            if source.name not in self._asides.names:
                self._consume_wanted(source)

    def _lost(self, reason: Exception) -> None:
        self.channel = None
        self._arrivals.over = True
        # What was in hand, or on its way to it, belongs to others from now on.
        self._began(-self._arrivals.epoch)
        refused = next(iter(self._asked.values()), None)
        self._asked = {}
        for source in self.sources.values():
            source.windows = {}
        cancelling, self._cancelling = self._cancelling, []
        for done in cancelling:
            done()
        code = code_of(reason)
        if refused is not None and code in {FORBIDDEN, NOT_FOUND}:
            # Each new try on the channel of the others would cost them what is in hand.
            self._missed(refused, str(reason), is_gone=code == NOT_FOUND)
        elif code == PRECONDITION and "timed out" in str(reason):
            _LOG.error(
                "RabbitMQ at %s took back everything that is being worked on, because one event "
                "takes longer than it allows: raise consumer_timeout there (%s)",
                self.link.address,
                hidden(str(reason)),
            )

    def _missed(self, source: Source, why: str, *, is_gone: bool) -> None:
        """A queue cannot be consumed from: try again until it can."""
        if source.name in self._asides.names:
            return
        _LOG.error(
            "RabbitMQ at %s gives nothing of %s (%s): trying again until it does%s",
            self.link.address,
            source.name,
            hidden(why),
            "; declaring it anew" * is_gone,
        )
        self._asides.put(source)
        if is_gone:
            self._gone()

    def widen(self, name: str, window: int) -> None:
        """Have at least so many of a queue delivered ahead of their acknowledgement."""
        source = self.sources.get(name)
        if source is None:
            # A new dict, because the event loop may be going through the old one.
            source = Source(name)
            self.sources = {**self.sources, name: source}
        source.wanted = max(source.wanted, window)
        if name not in self._asides.names:
            self._consume_wanted(source)

    def _consume_wanted(self, source: Source) -> None:
        """Have as many delivered as are wanted; without a channel it is done when there is one."""
        channel, more = self.channel, source.wanted - source.window
        if channel is None or not channel.is_open or more <= 0:
            return
        self._numbers += 1
        tag = f"{source.name}-{self._numbers}"
        source.windows[tag] = more
        self._asked[tag] = source
        self._arrivals.add(tag, source)
        channel.basic_qos(prefetch_count=more)
        channel.basic_consume(
            source.name, self._arrive_late, consumer_tag=tag, callback=self._consuming
        )

    def _consuming(self, frame: pika.frame.Method) -> None:
        self._asked.pop(frame.method.consumer_tag, None)

    def cancel(self, names: Sequence[str], done: Callable[[], None]) -> None:
        """Have nothing more delivered of some queues, and say when that is so.

        What is on its way until then arrives like all else. pika would reject it, and the broker
        count that as if a worker had died of it.
        """
        channel, arrivals = self.channel, self._arrivals
        left: set[str] = set()

        def cancelled(frame: pika.frame.Method) -> None:
            tag = frame.method.consumer_tag
            left.discard(tag)
            arrivals.known.discard(tag.encode())
            if not left and done in self._cancelling:
                self._cancelling.remove(done)
                done()

        for name in names:
            source = self.sources.get(name)
            if source is not None:
                left.update(source.windows)
                source.wanted, source.windows = 0, {}
        if channel is None or not channel.is_open or not left:
            done()
            return
        self._cancelling.append(done)
        for tag in tuple(left):
            channel.basic_cancel(tag, callback=cancelled)

    def _come(self) -> None:
        # When all that the socket holds has been read: to wake somebody costs as much as several
        # messages.
        self._io.later(0, self._tell)

    def _tell(self) -> None:
        self._arrivals.rest()
        self._came()

    def _arrive_late(self, *delivery: object) -> None:
        """Never called: all consumers are known, and what comes for them is read by `reading`."""
        raise AssertionError(f"pika read a delivery of a known consumer: {delivery}")

    def _cancelled(self, frame: pika.frame.Method) -> None:
        """The broker has ended a consumer: its queue was deleted, or has lost its leader."""
        tag = frame.method.consumer_tag
        for source in self.sources.values():
            if source.windows.pop(tag, None) is not None:
                self._asked.pop(tag, None)
                self._missed(source, "the queue is gone", is_gone=True)
                return

    def consume_again(self, name: str) -> None:
        """Consume from a queue that was declared anew."""
        source = self.sources.get(name)
        if source is not None:
            self._asides.forget(name)
            self._consume_wanted(source)

    def acknowledge(self, epoch: int, upto: int | None, singles: Sequence[int]) -> None:
        """Acknowledge deliveries of the present channel: up to one, and some by themselves."""
        channel = self.channel
        if channel is None or not channel.is_open or epoch != self._arrivals.epoch:
            return  # what was not acknowledged comes back; its record recognises it
        number = channel.channel_number
        frames = [acknowledgement_of(tag, number) for tag in singles]
        if upto is not None:
            frames.insert(0, acknowledgement_of(upto, number, multiple=True))
        channel.connection.write(frames)

    def set_aside(self, epoch: int, tags: Sequence[int]) -> None:
        """Have the broker put deliveries into the failed queue."""
        channel = self.channel
        if channel is not None and channel.is_open and epoch == self._arrivals.epoch:
            for tag in tags:
                channel.basic_reject(tag, requeue=False)
