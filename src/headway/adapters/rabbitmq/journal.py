"""A record that all processes of a broker share: the messages of one queue, read together.

A broker does not let anyone look at a message without taking it out. So a reader takes everything,
under a lock, publishes what the messages say together as one message, the *summary*, and only then
acknowledges what it took. To write is to append a message; that needs no lock.

- What messages say is merged, never replaced. So a message that is there twice, or comes back after
  it was acknowledged, as after a kill of the broker, changes nothing.
- There is always a summary, in the queue or in the hands of a reader. The broker releases the lock
  of a reader that died a moment before it gives back what that reader held: who finds no summary
  waits for it.
- No read gives anything back. The broker counts what is given back, and a delivery limit, which an
  operator may set for all queues by a policy, would remove it. Only the death of a reader between
  taking and publishing counts, and the next read starts the count anew.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from headway.adapters.rabbitmq.desk import LOCKED, NOT_FOUND, is_refused

SUMMARY = "headway.summary"
"""The type of a message that holds all that was known when it was written."""
Merge = Callable[[Sequence[bytes]], bytes]
"""Puts what several messages say into one; the oldest comes first."""
MergeParts = Callable[[Sequence[bytes]], Sequence[bytes]]
"""Puts it into several messages, at least one."""
NO_QUEUE = "headway.probe"
"""There is no queue of this name: for messages that only find out whether the broker takes any."""
_POLL_EVERY = 0.02
_MANY = 100
"""Messages from which on a reader takes them together."""
_LARGEST_PREFETCH = 65_535
_STUCK = 2.0
_LOCKED_FOR = 30.0
_COMES_BACK_WITHIN = 2.0
"""Seconds to wait for a summary. If there is none then, an operator has purged the queue."""


class _Taken(NamedTuple):
    body: bytes
    tag: int
    is_summary: bool


def is_there(channel: BlockingChannel, queue: str) -> bool:
    """Say whether a journal was ever declared."""
    return _messages(channel, queue) is not None


def is_empty(channel: BlockingChannel, queue: str) -> bool:
    """Say whether a journal was lost: deleted, purged, or in the hands of a reader right now."""
    return not _messages(channel, queue)


def _messages(channel: BlockingChannel, queue: str) -> int | None:
    asking = channel.connection.channel()
    try:
        found: int = asking.queue_declare(queue, passive=True).method.message_count
    except ChannelClosedByBroker as error:
        if is_refused(error, NOT_FOUND):
            return None
        raise
    asking.close()
    return found


def properties(*, is_summary: bool = False) -> pika.BasicProperties:
    """Give the properties of a message of a journal."""
    return pika.BasicProperties(
        delivery_mode=2,
        content_type="application/json",
        type=SUMMARY if is_summary else None,
    )


def start(channel: BlockingChannel, queue: str, body: bytes) -> None:
    """Write the first summary of a journal that was not there before."""
    channel.confirm_delivery()
    _publish(channel, queue, body)


def append(channel: BlockingChannel, queue: str, body: bytes) -> None:
    """Write a message, on a channel that confirms; UnroutableError: there is no such journal."""
    channel.basic_publish("", queue, body, properties(), mandatory=True)


def read(channel: BlockingChannel, queue: str, merge: Merge) -> bytes:
    """Give what all messages say together, and leave that in their place."""
    (summary,) = read_parts(channel, queue, lambda bodies: [merge(bodies)])
    return summary


def read_parts(channel: BlockingChannel, queue: str, merge: MergeParts) -> Sequence[bytes]:
    """As `read`, for a summary that is too large for one message; its last part ends it."""
    channel.confirm_delivery()
    # A broker without memory answers this, and nothing after it: the reader waits in front of the
    # lock, and holds nothing.
    channel.basic_publish("", NO_QUEUE, b"")
    with _locked(channel, queue):
        bodies, last = _take(channel, queue)
        *parts, end = merge(bodies)
        for part in parts:
            append(channel, queue, part)
        _publish(channel, queue, end)
        if last:
            channel.basic_ack(last, multiple=True)
    return [*parts, end]


def peek(channel: BlockingChannel, queue: str, merge: Merge) -> bytes:
    """As `read`, for a broker that takes no messages: everything is given back, and counted."""
    with _locked(channel, queue):
        bodies, last = _take(channel, queue)
        if last:
            channel.basic_nack(last, multiple=True, requeue=True)
    return merge(bodies)


def _publish(channel: BlockingChannel, queue: str, body: bytes) -> None:
    channel.basic_publish("", queue, body, properties(is_summary=True), mandatory=True)


def _take(channel: BlockingChannel, queue: str) -> tuple[list[bytes], int]:
    """Take everything; give the bodies and the tag of the last."""
    bodies: list[bytes] = []
    last, has_summary, deadline = 0, False, time.monotonic() + _COMES_BACK_WITHIN
    while True:
        method, found, body = channel.basic_get(queue)
        if method is not None:
            bodies.append(body)
            last, has_summary = method.delivery_tag, has_summary or found.type == SUMMARY
            if method.message_count >= _MANY:
                for each in _consume(channel, queue, method.message_count):
                    bodies.append(each.body)
                    last, has_summary = each.tag, has_summary or each.is_summary
        elif has_summary or time.monotonic() > deadline:
            return bodies, last
        else:
            channel.connection.sleep(_POLL_EVERY)


def _consume(channel: BlockingChannel, queue: str, number: int) -> list[_Taken]:
    """Take so many together, in their order: one by one, thousands take a minute."""
    taken: list[_Taken] = []

    def arrive(
        _channel: BlockingChannel,
        method: pika.spec.Basic.Deliver,
        found: pika.BasicProperties,
        body: bytes,
    ) -> None:
        taken.append(_Taken(body, method.delivery_tag, found.type == SUMMARY))

    # The broker gives out this many and no more: none is on its way when the consumer is cancelled.
    wanted = min(number, _LARGEST_PREFETCH)
    channel.basic_qos(prefetch_count=wanted)
    consumer = channel.basic_consume(queue, arrive)
    before, deadline = 0, time.monotonic() + _STUCK
    while len(taken) < wanted and time.monotonic() < deadline:
        channel.connection.process_data_events(time_limit=_POLL_EVERY)
        if len(taken) > before:
            before, deadline = len(taken), time.monotonic() + _STUCK
    channel.basic_cancel(consumer)
    return taken


@contextmanager
def _locked(channel: BlockingChannel, queue: str) -> Iterator[None]:
    """Hold the lock of a journal: a queue exclusive to the connection that reads."""
    connection, name = channel.connection, f"{queue}.lock"
    deadline = time.monotonic() + _LOCKED_FOR
    while True:
        lock = connection.channel()
        try:
            lock.queue_declare(name, exclusive=True)
        except ChannelClosedByBroker as error:
            if not is_refused(error, LOCKED):
                raise
            if time.monotonic() > deadline:
                raise ConnectionError(
                    f"another process has held {name} for {_LOCKED_FOR:g} s: does RabbitMQ take no "
                    "messages, because its memory or disk alarm is on?"
                ) from error
            connection.sleep(_POLL_EVERY)
        else:
            break
    try:
        yield
    finally:
        if lock.is_open:
            lock.queue_delete(name)
            lock.close()
