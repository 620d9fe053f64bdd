"""Begins of suspects: notes in a queue named after the operation, as long as it has no end.

The event itself stays where it is. A note says which worker began it; it counts when that worker is
gone. A worker that lives has a queue exclusive to its connection, or will soon have it again.
"""

from hashlib import sha256

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from headway.adapters.rabbitmq.desk import LOCKED, NOT_FOUND, is_refused
from headway.adapters.rabbitmq.topology import worker_queue

_KEPT = 7 * 24 * 3600 * 1000


def notes_of(queue: str, operation: str, generation: str) -> str:
    """Name the queue of the notes about one operation."""
    named = f"{len(queue)}:{queue}{len(operation)}:{operation}{generation}"
    return f"headway.begun.{sha256(named.encode()).hexdigest()[:24]}"


def note(channel: BlockingChannel, notes: str, token: str) -> None:
    """Note durably that a worker begins."""
    channel.confirm_delivery()
    channel.queue_declare(notes, durable=True, arguments={"x-expires": _KEPT})
    channel.basic_publish(
        "", notes, token.encode(), pika.BasicProperties(delivery_mode=2), mandatory=True
    )


def take_back(channel: BlockingChannel, notes: str, token: str) -> None:
    """Take back the latest note of a worker."""
    tags = [tag for tag, by in _read(channel, notes) if by == token]
    for tag in tags[-1:]:
        channel.basic_ack(tag)
    # The others go back with the channel.


def forget(channel: BlockingChannel, notes: str) -> None:
    """The operation has an end."""
    channel.queue_delete(notes)


def count(channel: BlockingChannel, notes: str, own: str) -> int:
    """Count the begins whose workers are gone."""
    try:
        tokens = [by for _, by in _read(channel, notes)]
    except ChannelClosedByBroker as error:
        if is_refused(error, NOT_FOUND):
            return 0
        raise
    return sum(not (token == own or _is_alive(channel, token)) for token in tokens)


def _read(channel: BlockingChannel, notes: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    while True:
        method, _, body = channel.basic_get(notes)
        if method is None:
            return found
        found.append((method.delivery_tag, body.decode(errors="replace")))


def _is_alive(channel: BlockingChannel, token: str) -> bool:
    asking = channel.connection.channel()
    try:
        asking.queue_declare(worker_queue(token), passive=True)
    except ChannelClosedByBroker as error:
        return is_refused(error, LOCKED)
    asking.close()
    return True
