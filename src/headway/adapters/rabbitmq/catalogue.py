"""Which queues were ever declared: one message in a queue of its own.

A broker does not list its queues to clients. The message is taken, changed and published anew under
a lock, which is a queue exclusive to the connection that holds it.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from headway.adapters.rabbitmq.desk import LOCKED, NOT_FOUND, is_refused
from headway.adapters.rabbitmq.topology import CATALOGUE
from headway.ports.bus import Queue

_LOCK = f"{CATALOGUE}.lock"
_LOOK_EVERY = 0.02
_PATIENCE = 30.0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One work queue."""

    event_types: tuple[str, ...]
    failed: str
    has_store: bool = False
    """A worker with a store has declared it once. Which store, only its workers know."""


Catalogue = dict[str, Entry]
_CATALOGUE = msgspec.json.Decoder(Catalogue)


def read(channel: BlockingChannel) -> Catalogue:
    """Give what is known; nothing, if no service was ever declared here."""
    with _locked(channel):
        try:
            found, tags = _take(channel)
        except ChannelClosedByBroker as error:
            if is_refused(error, NOT_FOUND):
                return {}
            raise
        for tag in tags:
            channel.basic_nack(tag, requeue=True)
        return found


def add(channel: BlockingChannel, queues: Sequence[Queue], *, has_store: bool = False) -> Catalogue:
    """Take queues into the catalogue; what others declared stays."""
    channel.confirm_delivery()
    with _locked(channel):
        found, tags = _take(channel)
        merged = _with(found, queues, has_store=has_store)
        if merged == found and len(tags) == 1:
            channel.basic_nack(tags[0], requeue=True)
            return found
        channel.basic_publish(
            "",
            CATALOGUE,
            msgspec.json.encode(merged),
            pika.BasicProperties(delivery_mode=2, content_type="application/json"),
            mandatory=True,
        )
        for tag in tags:
            channel.basic_ack(tag)
        return merged


def _take(channel: BlockingChannel) -> tuple[Catalogue, list[int]]:
    """Take what is there: after a crash two messages, of which the second knows more."""
    found: Catalogue = {}
    tags: list[int] = []
    while True:
        method, _, body = channel.basic_get(CATALOGUE)
        if method is None:
            return found, tags
        tags.append(method.delivery_tag)
        found |= _CATALOGUE.decode(body)


def _with(found: Catalogue, queues: Sequence[Queue], *, has_store: bool) -> Catalogue:
    merged = dict(found)
    for queue in queues:
        before = merged.get(queue.name) or Entry(event_types=(), failed=queue.failed)
        merged[queue.name] = Entry(
            event_types=tuple(dict.fromkeys((*before.event_types, *queue.event_types))),
            failed=queue.failed,
            has_store=before.has_store or has_store,
        )
    return merged


@contextmanager
def _locked(channel: BlockingChannel) -> Iterator[None]:
    connection = channel.connection
    deadline = time.monotonic() + _PATIENCE
    while True:
        lock = connection.channel()
        try:
            lock.queue_declare(_LOCK, exclusive=True)
        except ChannelClosedByBroker as error:
            if not is_refused(error, LOCKED):
                raise
            if time.monotonic() > deadline:
                raise ConnectionError(
                    f"another process has held {_LOCK} for {_PATIENCE:g} s: does RabbitMQ take no "
                    "messages, because its memory or disk alarm is on?"
                ) from error
            connection.sleep(_LOOK_EVERY)
        else:
            break
    try:
        yield
    finally:
        if lock.is_open:
            lock.queue_delete(_LOCK)
            lock.close()
