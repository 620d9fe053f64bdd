"""Publish with confirms: a window of messages on their way, each stored before it counts."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

import pika
from pika.channel import Channel

from headway.adapters.rabbitmq.io import IoThread
from headway.adapters.rabbitmq.link import Link

WINDOW = 1_000
"""Messages that may be on their way unconfirmed; after a lost connection so many are sent again."""
_PATIENCE = 10.0
"""Seconds that a caller waits for a connection, before publishing is given up."""
_LOOK_EVERY = 1.0


class NotPublishedError(ConnectionError):
    """The broker was away, or refused: whether anything was stored is not known."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as the broker gets it."""

    exchange: str
    routing_key: str
    body: bytes
    properties: pika.BasicProperties


class _Batch:
    """Messages that one caller waits for."""

    __slots__ = ("error", "future", "left", "loop", "routed", "waits_since", "withdrawn")

    def __init__(self, count: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[bool]] = self.loop.create_future()
        self.left = count
        self.routed = [True] * count
        self.error: Exception | None = None
        self.withdrawn = False
        self.waits_since = time.monotonic()

    def one_less(self) -> None:
        self.left -= 1
        if not self.left:
            self.loop.call_soon_threadsafe(self._answer)

    def fail(self, error: Exception) -> None:
        self.withdrawn = True
        self.error = error
        self.loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.routed)


_Item = tuple[_Batch, int, Outgoing]


class Sender:
    """Publishes over a connection of its own."""

    def __init__(self, io: IoThread, parameters: pika.ConnectionParameters) -> None:
        self._io = io
        self._link = Link(
            io, parameters, purpose="publishing", opened=self._opened, lost=self._lost
        )
        self._started = False
        self._channel: Channel | None = None
        self._next_tag = 1
        self._waiting: deque[_Item] = deque()
        self._unconfirmed: dict[int, _Item] = {}
        self._timer: object | None = None

    @property
    def blocked(self) -> bool:
        return self._link.blocked

    async def publish(self, messages: Sequence[Outgoing]) -> list[bool]:
        """Publish, and wait until all are stored; for each, say whether any queue took it."""
        if not messages:
            return []
        batch = _Batch(len(messages))
        self._io.call(partial(self._put, batch, messages))
        try:
            return await batch.future
        except asyncio.CancelledError:
            self._io.call(partial(self._withdraw, batch))
            raise

    def close(self, closed: Callable[[], None]) -> None:
        """Let go of the connection; on the I/O thread."""
        if self._started:
            self._link.close(closed)
        else:
            closed()

    # On the I/O thread

    def _put(self, batch: _Batch, messages: Sequence[Outgoing]) -> None:
        if not self._started:
            self._started = True
            self._link.connect()
            self._watch()
        self._waiting.extend([(batch, index, one) for index, one in enumerate(messages)])
        self._pump()

    def _withdraw(self, batch: _Batch) -> None:
        batch.withdrawn = True
        self._waiting = deque(item for item in self._waiting if item[0] is not batch)

    def _pump(self) -> None:
        channel, waiting, unconfirmed = self._channel, self._waiting, self._unconfirmed
        if channel is None or not channel.is_open:
            return
        while waiting and len(unconfirmed) < WINDOW:
            item = waiting.popleft()
            message = item[2]
            unconfirmed[self._next_tag] = item
            self._next_tag += 1
            channel.basic_publish(
                message.exchange,
                message.routing_key,
                message.body,
                message.properties,
                mandatory=True,
            )

    def _opened(self, channel: Channel) -> None:
        if self._timer is not None:
            self._io.never_mind(self._timer)
            self._timer = None
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._confirmed, callback=partial(self._confirming, channel))

    def _confirming(self, channel: Channel, _frame: object) -> None:
        self._channel = channel
        self._next_tag = 1
        self._pump()

    def _lost(self) -> None:
        self._channel = None
        # Nobody knows which of these were stored. Sent again they have the same ids.
        again = [item for item in self._unconfirmed.values() if not item[0].withdrawn]
        for batch, _, _ in again:
            batch.waits_since = time.monotonic()
        self._unconfirmed = {}
        self._waiting.extendleft(reversed(again))
        self._watch()

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._io.later(_LOOK_EVERY, self._give_up)

    def _give_up(self) -> None:
        """Tell those who have waited long enough for a connection."""
        self._timer = None
        since = time.monotonic() - _PATIENCE
        late = {id(item[0]): item[0] for item in self._waiting if item[0].waits_since < since}
        for batch in late.values():
            batch.fail(
                NotPublishedError(f"RabbitMQ at {self._link.address} is away: not published")
            )
        if late:
            self._waiting = deque(item for item in self._waiting if not item[0].withdrawn)
        self._watch()

    def _confirmed(self, frame: pika.frame.Method) -> None:
        method = frame.method
        refused = isinstance(method, pika.spec.Basic.Nack)
        if method.multiple:
            tags = list(takewhile(lambda tag: tag <= method.delivery_tag, self._unconfirmed))
        else:
            tags = [method.delivery_tag]
        for tag in tags:
            item = self._unconfirmed.pop(tag, None)
            if item is None:
                continue
            if refused:
                item[0].error = NotPublishedError(
                    f"RabbitMQ at {self._link.address} refused a message for "
                    f"{item[2].routing_key!r}: its queue is full or has no leader"
                )
            item[0].one_less()
        if self._waiting:
            self._pump()

    def _returned(
        self,
        _channel: Channel,
        method: pika.spec.Basic.Return,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        """No queue takes it. This comes before its confirm, so it is still among them."""
        for batch, index, message in self._unconfirmed.values():
            if (
                batch.routed[index]
                and message.routing_key == method.routing_key
                and message.exchange == method.exchange
                and message.properties.message_id == properties.message_id
                and message.body == body
            ):
                batch.routed[index] = False
                return
