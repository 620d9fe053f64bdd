"""Look through a failed queue: take messages, hold them, give them back in their order.

What RabbitMQ does, as measured on quorum queues:

- A message that is rejected goes to the end of its queue. One whose channel is closed goes back to
  the beginning: behind the others that came back, before those that were never given out. So what
  is given back stays in order if everything that ever came back is given back together.
- Of several consumers of one channel nobody knows which one's messages come back first. So every
  page has its own channel, and the channels are closed one after another.
- Each time a message comes back its count of deliveries rises; where somebody has set a limit, the
  broker throws it away in the end. So what has been given back often is published anew.
- Of many acknowledgements on one channel it puts all but the first few aside for a moment, and when
  the channel is closed meanwhile it forgets them. So there are few, and pauses between them.

Everything here runs on the thread of the session.
"""

import time
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from headway.adapters.rabbitmq.acknowledging import Acknowledged
from headway.adapters.rabbitmq.contents import deliveries
from headway.adapters.rabbitmq.desk import LOCKED, is_refused
from headway.adapters.rabbitmq.session import LostError

KEPT_IN_ORDER = 20_000
"""Letters up to which order is kept; to put back more than that would take too long."""
_WORN = 8
"""Times given back after which a message is published anew; others set limits of 20."""
_AT_ONCE = 500
_LEAST = 50
_PART = 50
_LOOK_EVERY = 0.02
_QUIET = 2
_STUCK = 5.0
_COMES_BACK_WITHIN = 2.0
_FRAMES = 16
"""Acknowledgements between two pauses; the broker puts aside what is beyond 32."""
_PAUSE = 0.02


class QueueHeldError(ConnectionError):
    """Somebody else is reading the queue: part of its letters cannot be seen."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"somebody else is reading {queue} or working on it: wait until that is done, and try "
            "again"
        )


class Page:
    """Messages that were taken together."""

    def __init__(self, channel: BlockingChannel) -> None:
        self.channel = channel
        self.unsettled = 0
        self._acknowledged = Acknowledged()
        self._frames = 0

    def settle(self, tags: Sequence[int]) -> None:
        upto, singles = self._acknowledged.settle(tags)
        if upto is not None:
            self.channel.basic_ack(upto, multiple=True)
            self._pace()
        for tag in singles:
            self.channel.basic_ack(tag)
            self._pace()
        self.unsettled -= len(tags)

    def close(self) -> None:
        if self._frames >= _FRAMES:
            self.channel.connection.sleep(_PAUSE)
        self.channel.close()

    def _pace(self) -> None:
        self._frames += 1
        if self._frames % _FRAMES == 0:
            self.channel.connection.sleep(_PAUSE)


class Taken(NamedTuple):
    """A message in hand."""

    page: Page
    tag: int
    properties: pika.BasicProperties
    body: bytes


class Scan:
    """One look through a queue, as it is when it begins. Nobody else can look meanwhile.

    Args:
        connection: Everything that is held belongs to it.
        queue: The failed queue.
        patience: Seconds to wait for others that look through it.
    """

    def __init__(self, connection: pika.BlockingConnection, queue: str, patience: float) -> None:
        self.queue = queue
        self._connection = connection
        self._lock = _lock(connection, queue, patience)
        self._asking = connection.channel()
        self._pages: list[Page] = []
        self.left = 0
        """Messages that it still has to look at; what comes meanwhile is not one of them."""
        self.is_worn = False
        self.is_beyond = False
        """Whatever ever came back is in hand: what follows was never given out."""

    @property
    def held(self) -> int:
        return sum(page.unsettled for page in self._pages)

    def begin(self) -> None:
        """Count what is there. What another has just let go of may still be on its way back."""
        before = -1
        while (ready := self.ready()) != before:
            before = ready
            self._connection.sleep(_LOOK_EVERY)
        self.left = ready

    def extend(self) -> bool:
        """Go on with what has come since; say whether there is any."""
        self.left = self.ready()
        return self.left > 0

    def ready(self) -> int:
        return _ready(self._asking, self.queue)

    def take(self, wanted: int) -> list[Taken]:
        """Take the next ones. With many in hand, more than wanted: channels are not endless."""
        number = min(max(wanted, _LEAST, self.held // _PART), self.left)
        taken = self._take(min(number, max(_AT_ONCE, self.held // _PART))) if number > 0 else []
        self.left = self.left - len(taken) if taken else 0
        return taken

    def settle(self, taken: Sequence[tuple[Page, int]]) -> None:
        """Remove messages for good."""
        tags: dict[Page, list[int]] = {}
        for page, tag in taken:
            tags.setdefault(page, []).append(tag)
        for page, own in tags.items():
            if not page.channel.is_open:
                raise LostError(f"the broker took back what was held of {self.queue}")
            page.settle(own)

    def complete(self) -> bool:
        """Take what has to be given back together with the rest; say whether order is kept."""
        rest = self.ready()
        if self.is_beyond and not self.is_worn:
            return True
        if self.held + rest > KEPT_IN_ORDER:
            return rest == 0
        while rest > 0 and (self.is_worn or not self.is_beyond):
            taken = self._take(min(_AT_ONCE, rest))
            if not taken:
                break
            rest -= len(taken)
        return True

    def give_back(self) -> int:
        """Give back everything in hand, in order; say how many that were."""
        pages, self._pages = self._pages, []
        returned = 0
        for page in pages:
            if page.channel.is_open:
                there = self.ready() + page.unsettled
                page.close()
                self._wait_for(there)
                returned += page.unsettled
        return returned

    def end(self) -> None:
        """Let go of whatever is still in hand, and let others look."""
        pages, self._pages = self._pages, []
        for page in pages:
            if page.channel.is_open:
                page.close()
        for channel in (self._asking, self._lock):
            if channel.is_open:
                if channel is self._lock:
                    channel.queue_delete(lock_of(self.queue))
                channel.close()

    def _wait_for(self, there: int) -> None:
        """The broker puts them back some time after it has closed the channel."""
        deadline = time.monotonic() + _COMES_BACK_WITHIN
        while self.ready() < there and time.monotonic() < deadline:
            self._connection.sleep(_LOOK_EVERY / 10)

    def _take(self, number: int) -> list[Taken]:
        channel = self._connection.channel()
        page = Page(channel)
        self._pages.append(page)
        taken: list[Taken] = []

        def arrive(
            _channel: BlockingChannel,
            method: pika.spec.Basic.Deliver,
            properties: pika.BasicProperties,
            body: bytes,
        ) -> None:
            taken.append(Taken(page, method.delivery_tag, properties, body))

        channel.basic_qos(prefetch_count=number)
        consumer = channel.basic_consume(self.queue, arrive)
        quiet, progress, deadline = 0, 0, time.monotonic() + _STUCK
        while len(taken) < number and quiet < _QUIET and time.monotonic() < deadline:
            self._connection.process_data_events(time_limit=_LOOK_EVERY)
            if len(taken) > progress:
                quiet, progress, deadline = 0, len(taken), time.monotonic() + _STUCK
            elif _ready(channel, self.queue) == 0:
                # Asked over the same channel, so what is on its way by it has come before the
                # answer: somebody who keeps no order, such as another program, was faster.
                quiet += 1
        channel.basic_cancel(consumer)
        page.unsettled = len(taken)
        counts = [deliveries(each.properties) for each in taken]
        self.is_worn = self.is_worn or any(count >= _WORN for count in counts)
        self.is_beyond = 0 in counts
        return taken


def _ready(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def lock_of(queue: str) -> str:
    """Name the queue that is there, and exclusive to a connection, while somebody looks."""
    return f"headway.reading.{sha256(queue.encode()).hexdigest()[:24]}"


def _lock(connection: pika.BlockingConnection, queue: str, patience: float) -> BlockingChannel:
    deadline = time.monotonic() + patience
    while True:
        channel = connection.channel()
        try:
            channel.queue_declare(lock_of(queue), exclusive=True)
        except ChannelClosedByBroker as error:
            if not is_refused(error, LOCKED):
                raise
            if time.monotonic() >= deadline:
                raise QueueHeldError(queue) from None
            connection.sleep(2 * _LOOK_EVERY)
        else:
            return channel
