"""Which queues were ever declared: a broker does not list its queues to clients."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec
from pika.adapters.blocking_connection import BlockingChannel

from headway.adapters.rabbitmq import journal
from headway.adapters.rabbitmq.desk import Desk
from headway.adapters.rabbitmq.topology import CATALOGUE
from headway.ports.bus import Queue

_LOG = logging.getLogger("headway")
_ACCEPTED_WITHIN = 3.0
"""Seconds: a broker without memory takes no messages, and a reader does not wait for that."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One work queue."""

    event_types: tuple[str, ...]
    failed: str
    has_store: bool = False
    """A worker with a store has declared it once. Which store, only its workers know."""


Entries = dict[str, Entry]
_ENTRIES = msgspec.json.Decoder(Entries)


class Catalogue:
    """The catalogue of a broker, with what this process has declared.

    Args:
        desk: For the reading.
        probe: Publishes a message, and says whether the broker takes more: without memory it takes
            none, or does not even answer.
    """

    def __init__(self, desk: Desk, probe: Callable[[], Awaitable[bool]]) -> None:
        self._desk = desk
        self._probe = probe
        self._own: Entries = {}
        self.known: Entries = {}
        """What was read last."""

    async def read(self) -> Entries:
        """Give every queue that was declared; none, if no service was ever started here."""
        if not await self._desk.run(partial(journal.is_there, queue=CATALOGUE)):
            return {}
        if await self._is_accepted():
            self.known = await self._desk.run(self._read)
        elif not self.known:
            self.known = await self._desk.run(self._peek)
        return self.known

    def add(
        self, channel: BlockingChannel, queues: Sequence[Queue], *, has_store: bool, is_new: bool
    ) -> None:
        """Add queues; what others declared stays. On the desk's thread."""
        for queue in queues:
            self._own[queue.name] = Entry(
                event_types=queue.event_types, failed=queue.failed, has_store=has_store
            )
        if is_new:
            first = self._merge([])
            journal.start(channel, CATALOGUE, first)
            self.known = _ENTRIES.decode(first)
        else:
            self.known = self._read(channel)

    def _read(self, channel: BlockingChannel) -> Entries:
        return _ENTRIES.decode(journal.read(channel, CATALOGUE, self._merge))

    def _peek(self, channel: BlockingChannel) -> Entries:
        return _ENTRIES.decode(journal.peek(channel, CATALOGUE, self._merge))

    async def _is_accepted(self) -> bool:
        try:
            async with asyncio.timeout(_ACCEPTED_WITHIN):
                return await self._probe()
        except (TimeoutError, ConnectionError):
            return False

    def _merge(self, bodies: Sequence[bytes]) -> bytes:
        """What a running worker has declared is never missing."""
        merged: Entries = {}
        for found in [*map(_decoded, bodies), self._own]:
            for name, entry in found.items():
                before = merged.get(name, entry)
                merged[name] = Entry(
                    event_types=tuple(dict.fromkeys((*before.event_types, *entry.event_types))),
                    failed=entry.failed,
                    has_store=before.has_store or entry.has_store,
                )
        return msgspec.json.encode(merged)


def _decoded(body: bytes) -> Entries:
    try:
        return _ENTRIES.decode(body)
    except msgspec.MsgspecError as error:
        _LOG.error("A message in %s is no part of the catalogue: %s", CATALOGUE, error)
        return {}
