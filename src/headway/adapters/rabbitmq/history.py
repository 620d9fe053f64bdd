"""The history of changes on a broker without a store: the durable queue `headway.history`.

It is a journal (see there). All of it may be too large for one message, so a reader leaves several.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError

from headway.adapters.rabbitmq import journal
from headway.adapters.rabbitmq.declaring import declare_queue, has_default_limit
from headway.adapters.rabbitmq.desk import Desk
from headway.adapters.rabbitmq.topology import HISTORY, history_queue
from headway.core.writes import Document
from headway.ports.history import KEPT, newest_first

_LOG = logging.getLogger("headway")
NO_ENTRIES = b"[]"
_LARGEST = 500_000
"""Bytes of entries in one message."""
_ENTRIES = msgspec.json.Decoder(list[Document])


class RabbitHistory:
    """Entries as JSON, in lists."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def append(self, entry: Document) -> None:
        await self._desk.run(partial(_append, body=msgspec.json.encode([entry])))

    async def latest(self, limit: int) -> Sequence[Document]:
        entries = await self._desk.run(_read)
        return newest_first(reversed(entries))[:limit]


def _append(channel: BlockingChannel, body: bytes) -> None:
    channel.confirm_delivery()
    try:
        journal.append(channel, HISTORY, body)
    except UnroutableError:  # no worker has declared it
        declare_queue(channel, history_queue(has_default_limit=has_default_limit(channel)))
        journal.start(channel, HISTORY, NO_ENTRIES)
        journal.append(channel, HISTORY, body)


def _read(channel: BlockingChannel) -> list[Document]:
    """Give all entries in the order in which they were appended."""
    if not journal.is_there(channel, HISTORY):
        return []
    parts = journal.read_parts(channel, HISTORY, _merge)
    return [entry for part in parts for entry in _decoded(part)]


def _merge(bodies: Sequence[bytes]) -> Sequence[bytes]:
    """Give the newest entries, each once; a message of another program is left as it is."""
    foreign = [body for body in bodies if not _is_ours(body)]
    if foreign:
        _LOG.warning("%d messages in %s are no entries of the history", len(foreign), HISTORY)
    found = dict.fromkeys(msgspec.json.encode(e) for body in bodies for e in _decoded(body))
    return [*foreign, *_packed(list(found)[-KEPT:])]


def _is_ours(body: bytes) -> bool:
    try:
        _ENTRIES.decode(body)
    except msgspec.MsgspecError:
        return False
    return True


def _decoded(body: bytes) -> list[Document]:
    return _ENTRIES.decode(body) if _is_ours(body) else []


def _packed(entries: Sequence[bytes]) -> Iterator[bytes]:
    """Give the bodies of messages that hold all entries; at least one."""
    part: list[bytes] = []
    size = 0
    for each in entries:
        if part and size + len(each) > _LARGEST:
            yield b"[" + b",".join(part) + b"]"
            part, size = [], 0
        part.append(each)
        size += len(each)
    yield b"[" + b",".join(part) + b"]"
