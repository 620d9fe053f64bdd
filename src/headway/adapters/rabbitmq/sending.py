"""Publish with confirms: a window of messages on their way, each stored before it counts."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile

import pika
from pika.channel import Channel

from headway.adapters.rabbitmq.batches import Batch, Item, late
from headway.adapters.rabbitmq.connecting import full
from headway.adapters.rabbitmq.frames import UnwritableError, frames_of
from headway.adapters.rabbitmq.io import IoThread
from headway.adapters.rabbitmq.link import Link
from headway.adapters.rabbitmq.outgoing import Outgoing
from headway.adapters.rabbitmq.refusing import (
    NOT_FOUND,
    code_of,
    is_about_a_message,
    is_about_the_exchange,
    largest_body,
)
from headway.core.errors import (
    BrokerFullError,
    ConfigurationError,
    NotPublishedError,
    UnsendableError,
)

WINDOW = 1_000
"""Messages that may be on their way unconfirmed; after a lost connection so many are sent again."""
_PATIENCE = 10.0
"""Seconds that a caller waits for a connection, before publishing is given up; and for a broker
without memory, where that is not waited for however long it takes."""
_LOOK_EVERY = 1.0
_LONGEST_REASON = 300
_UNKNOWN = "whether all that was sent is stored is not known"


class NoExchangeError(NotPublishedError):
    """There is no such exchange: no service was ever started on this broker, or it was deleted."""


class Sender:
    """Publishes over a connection of its own.

    Args:
        io: Where it runs.
        parameters: Of the connection.
        patient: Wait for a broker that has no memory or disk space left, however long it takes.
        for_worker: Wait for a broker that refuses the login too, as for one that is not there.
    """

    def __init__(
        self,
        io: IoThread,
        parameters: pika.ConnectionParameters,
        *,
        patient: bool = True,
        for_worker: bool = False,
    ) -> None:
        self._io = io
        self._patient = patient
        self._for_worker = for_worker
        self._link = Link(
            io,
            parameters,
            purpose="publishing",
            opened=self._opened,
            lost=self._lost,
            refused=self._refused,
            unblocked=self._pump,
        )
        self._started = False
        self._refusal: Exception | None = None
        """Why there is no connection, if there was none at the last try."""
        self._was_open = False
        self._channel: Channel | None = None
        self._next_tag = 1
        self._waiting: deque[Item] = deque()
        self._unconfirmed: dict[int, Item] = {}
        self._alone = 0
        """So many are sent one at a time: the broker refused one of them, and did not say which."""
        self._frame = 0
        self._largest: int | None = None
        """Up to which size the broker takes messages, if it has said so."""
        self._timer: object | None = None

    @property
    def blocked(self) -> bool:
        return self._link.blocked

    async def publish(self, messages: Sequence[Outgoing]) -> list[bool]:
        """Publish, and wait until all are stored; for each, say whether any queue took it."""
        if not messages:
            return []
        batch = Batch(messages)
        self._io.call(partial(self._put, batch))
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

    def _put(self, batch: Batch) -> None:
        if not self._started:
            self._started = True
            self._link.connect()
        self._watch()
        self._waiting.extend([(batch, index, one) for index, one in enumerate(batch.messages)])
        self._pump()

    def _withdraw(self, batch: Batch) -> None:
        batch.withdrawn = True
        self._waiting = deque(item for item in self._waiting if item[0] is not batch)

    def _pump(self) -> None:
        channel, unconfirmed = self._channel, self._unconfirmed
        if channel is None or not channel.is_open or self._link.blocked:
            return  # what is not written while the broker takes nothing can be withdrawn
        written: list[bytes] = []
        number = channel.channel_number
        while self._waiting and len(unconfirmed) < (1 if self._alone else WINDOW):
            item = self._waiting.popleft()
            batch, index, message = item
            frames = self._prepare(batch, number) if batch.frames is None else batch.frames
            if frames is None:
                continue
            try:
                written.append(frames.pop(index, b"") or self._written(message, number))
            except UnwritableError as error:
                self._refuse(item, str(error))
                continue
            # Before it is sent: if the connection is lost over it, it is sent again.
            unconfirmed[self._next_tag] = item
            batch.is_sent = True
            self._next_tag += 1
        channel.connection.write(written)

    def _prepare(self, batch: Batch, channel: int) -> dict[int, bytes] | None:
        """Write the frames of a batch; None: one of its messages has none, and none is sent."""
        batch.frames = frames = {}
        for index, message in enumerate(batch.messages):
            try:
                frames[index] = self._written(message, channel)
            except UnwritableError as error:
                self._refuse((batch, index, message), str(error))
                return None
        return frames

    def _written(self, message: Outgoing, channel: int) -> bytes:
        size, largest = len(message.body), self._largest
        if largest is not None and size > largest:
            raise UnwritableError(f"it has {size} bytes, and the broker takes at most {largest}")
        return frames_of(message, channel, self._frame)

    def _refuse(self, item: Item, why: str) -> None:
        """Fail a batch for good: one of its messages can never be sent."""
        if self._alone:
            self._alone -= 1
        batch, index, message = item
        batch.refused.add(index)
        self._fail(
            [batch],
            UnsendableError(
                f"a message for {message.routing_key[:100]!r} cannot be sent to RabbitMQ at "
                f"{self._link.address}: {why[:_LONGEST_REASON]}"
            ),
        )

    def _fail(self, batches: Sequence[Batch], error: Exception) -> None:
        """Fail batches, each with an error that says what of it is stored."""
        for batch in batches:
            own = type(error)(*error.args)
            if batch.is_sent and isinstance(own, NotPublishedError | UnsendableError):
                open_ones = [*self._waiting, *self._unconfirmed.values()]
                unknown = {index for other, index, _ in open_ones if other is batch}
                own.stored = batch.stored(unknown)
            batch.fail(own)
        self._waiting = deque(item for item in self._waiting if not item[0].withdrawn)

    def _opened(self, channel: Channel) -> None:
        self._frame = channel.connection.params.frame_max
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._confirmed, callback=partial(self._confirming, channel))

    def _confirming(self, channel: Channel, _frame: object) -> None:
        self._channel = channel
        self._next_tag = 1
        self._refusal, self._was_open = None, True
        self._pump()

    def _refused(self, reason: Exception) -> bool:
        """Tell callers at once that there is no connection; False: they go on waiting.

        Workers do, and others do for a broker that was there before: it may be restarting.
        """
        self._refusal = reason
        is_definite = isinstance(reason, ConfigurationError)
        if self._for_worker or (self._was_open and not is_definite):
            return False
        self._fail_away({id(batch): batch for batch, _, _ in self._waiting}.values(), reason)
        return True

    def _fail_away(self, batches: Iterable[Batch], reason: Exception) -> None:
        """Fail batches because there is no connection."""
        for batch in batches:
            if batch.is_sent:
                error: Exception = NotPublishedError(f"{reason}; {_UNKNOWN}")
            elif isinstance(reason, ConfigurationError) and not self._for_worker:
                error = reason
            else:
                error = NotPublishedError(f"{reason}; nothing was published")
            self._fail([batch], error)

    def _lost(self, reason: Exception) -> None:
        self._channel = None
        sent, self._unconfirmed = list(self._unconfirmed.values()), {}
        self._largest = largest_body(reason)
        if is_about_a_message(reason):
            if len(sent) == 1:
                self._blame(sent.pop(), reason)
            self._alone = len(sent)
        # Nobody knows which of these were stored. Sent again they have the same ids.
        again = [item for item in sent if not item[0].withdrawn]
        for batch, _, _ in again:
            batch.lost()
        self._waiting.extendleft(reversed(again))
        for batch, _, _ in self._waiting:
            batch.frames = batch.frames and {}  # those were for the channel that is gone
        self._watch()

    def _blame(self, item: Item, reason: Exception) -> None:
        """It was on its way alone when the broker closed the channel because of a message."""
        if not is_about_the_exchange(reason):
            self._refuse(item, str(reason))
            return
        exchange = item[2].exchange
        kind = NoExchangeError if code_of(reason) == NOT_FOUND else NotPublishedError
        concerned = (each for each in (item, *self._waiting) if each[2].exchange == exchange)
        self._fail(
            list({id(batch): batch for batch, _, _ in concerned}.values()),
            kind(
                f"RabbitMQ at {self._link.address} takes nothing for the exchange {exchange!r}: "
                f"{reason}"
            ),
        )

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self._io.later(_LOOK_EVERY, self._give_up)

    def _give_up(self) -> None:
        """Tell those who have waited long enough, for a connection or for a full broker."""
        self._timer = None
        since = time.monotonic() - _PATIENCE
        if self._channel is None:
            lost = ConnectionError(f"RabbitMQ at {self._link.address} lost the connection")
            self._fail_away(late(self._waiting, since), self._refusal or lost)
        elif not self._patient and (self._link.blocked_since or since) < since:
            self._fail_blocked(since)
        if self._channel is None or self._waiting or self._unconfirmed:
            self._watch()

    def _fail_blocked(self, since: float) -> None:
        what = full(self._link.address)
        batches = late([*self._waiting, *self._unconfirmed.values()], since)
        self._fail(
            [batch for batch in batches if not batch.is_sent],
            BrokerFullError(f"{what}; nothing was published"),
        )
        self._fail(
            [batch for batch in batches if batch.is_sent],
            NotPublishedError(f"{what}; {_UNKNOWN}"),
        )

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
                self._nacked(item)
            item[0].one_less()
            if self._alone:
                self._alone -= 1
        if self._waiting:
            self._pump()

    def _nacked(self, item: Item) -> None:
        """Fail a batch when all its messages are answered: the broker did not store this one."""
        batch, index, message = item
        batch.refused.add(index)
        batch.error = NotPublishedError(
            f"RabbitMQ at {self._link.address} refused a message for "
            f"{message.routing_key!r}: its queue is full or has no leader"
        )

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
