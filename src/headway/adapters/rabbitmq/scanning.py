"""Look through a failed queue: take messages, hold them, give them back in their order.

What RabbitMQ does, as measured on quorum queues:

- A message that is rejected goes to the end of its queue. One whose channel is closed goes back to
  the beginning: behind the others that came back, before those that were never given out. So what
  is given back stays in order if everything that ever came back is given back together.
- Of several consumers of one channel nobody knows which one's messages come back first. So every
  page has its own channel, and the channels are closed one after another.
- Each time a message comes back its count of deliveries rises, and the broker removes it when the
  count exceeds a delivery limit, which an operator may set for all queues by a policy. So what has
  come back once is published anew before a look holds it: it never comes back twice.
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
_AT_ONCE = 500
_LEAST = 50
_PART = 50
_LOOK_EVERY = 0.02
_QUIET = 2
_STUCK = 5.0
_COMES_BACK_WITHIN = 2.0
_REMEMBERED = 5_000
_REMEMBERED_BYTES = 64_000_000
"""Of one look: messages that can be published anew if the broker removes what is given back."""
_SETTLED_PAGES = 100
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


class RemovedError(Exception):
    """The broker removed the first message when it was given back: its delivery limit is 0."""

    def __init__(self, page: "Page") -> None:
        super().__init__()
        self.page = page


class Page:
    """Messages that were taken together."""

    def __init__(self, channel: BlockingChannel) -> None:
        self.channel = channel
        self.unsettled = 0
        self.remembered: Sequence[Taken] = ()
        """Its messages, or none: there may be very many."""
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

    def open_ones(self) -> list["Taken"]:
        """Give those of the remembered messages that are not settled."""
        return [each for each in self.remembered if self._acknowledged.is_open(each.tag)]

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

    @property
    def is_worn(self) -> bool:
        """Say whether it has come back before; once more, and a limit of 1 removes it."""
        return deliveries(self.properties) > 0


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
        self._remembered = self._remembered_bytes = 0
        self.is_doubted = False
        """The broker may remove what is given back: the first message is tried alone."""
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
        # What a look has in hand can be published anew up to here.
        self.is_doubted = self.is_doubted or (not self._pages and ready > _REMEMBERED)

    def extend(self) -> bool:
        """Go on with what has come since; say whether there is any."""
        self.left = self.ready()
        return self.left > 0

    def ready(self) -> int:
        return _ready(self._asking, self.queue)

    def take(self, wanted: int) -> list[Taken]:
        """Take the next ones. With many in hand, more than wanted: channels are not endless.

        RemovedError: the broker removes what is given back, so nothing more is taken.
        """
        if self.is_doubted and self.left > 0 and (worn := self._try_one()):
            self.left -= 1
            return worn
        number = min(max(wanted, _LEAST, self.held // _PART), self.left)
        taken = self._take(min(number, max(_AT_ONCE, self.held // _PART))) if number > 0 else []
        self.left = self.left - len(taken) if taken else 0
        return taken

    def _try_one(self) -> list[Taken]:
        """Find out by the first message whether what is given back stays; give it if it is worn.

        A worn message has come back before. One that was never given out is given back: so a
        delivery limit of 0 removes one message, of which this process has the copy.
        """
        first = self._take(1)
        if first and not first[0].is_worn:
            page = self._pages.pop()
            before = self.ready()
            page.close()
            came_back = self._wait_for(before, 1, _COMES_BACK_WITHIN)
            if not came_back and not self._has_consumers():
                raise RemovedError(page)
            first = []
        self.is_doubted = False
        return first

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
        if self.is_beyond:
            return True
        if self.held + rest > KEPT_IN_ORDER:
            return rest == 0
        while rest > 0 and not self.is_beyond:
            taken = self._take(min(_AT_ONCE, rest))
            if not taken:
                break
            rest -= len(taken)
        return True

    def give_back(self) -> list[Page]:
        """Give back everything in hand, in order; give the pages that the broker removed."""
        pages, self._pages = self._pages, []
        removed: list[Page] = []
        for page in pages:
            if not page.channel.is_open:
                continue
            before = self.ready()
            page.close()
            if not self._wait_for(before, page.unsettled, 0.0 if removed else _COMES_BACK_WITHIN):
                removed.append(page)
        # Another program may have taken them. The broker counts cancelled consumers that still hold
        # messages, so ask when all pages are closed.
        return [] if removed and self._has_consumers() else removed

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

    def _wait_for(self, before: int, number: int, seconds: float) -> bool:
        """Wait until messages are back in the queue; say whether any of them is."""
        deadline = time.monotonic() + seconds
        while (ready := self.ready()) < before + number and time.monotonic() < deadline:
            self._connection.sleep(_LOOK_EVERY / 10)
        return number == 0 or ready > before

    def _has_consumers(self) -> bool:
        """Say whether others consume; the broker forgets our own a moment after they are closed."""
        deadline = time.monotonic() + _COMES_BACK_WITHIN
        while True:
            found = self._asking.queue_declare(self.queue, passive=True).method
            if not found.consumer_count or time.monotonic() > deadline:
                return bool(found.consumer_count)
            self._connection.sleep(_LOOK_EVERY)

    def _take(self, number: int) -> list[Taken]:
        self._close_settled()
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
        self._remember(page, taken)
        self.is_beyond = not all(each.is_worn for each in taken)
        return taken

    def _close_settled(self) -> None:
        """Close pages of which nothing is in hand: a connection has about two thousand channels."""
        settled = [page for page in self._pages if not page.unsettled]
        if len(settled) < _SETTLED_PAGES:
            return
        for page in settled[:-1]:  # acknowledgements of the last may still be on their way
            self._pages.remove(page)
            if page.channel.is_open:
                page.close()

    def _remember(self, page: Page, taken: Sequence[Taken]) -> None:
        number = self._remembered + len(taken)
        size = self._remembered_bytes + sum(len(each.body) for each in taken)
        if number <= _REMEMBERED and size <= _REMEMBERED_BYTES:
            page.remembered = taken
            self._remembered, self._remembered_bytes = number, size


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
