"""Which versions of services are alive, as the broker knows it: no clock of a worker counts.

Each version of a service has a *marker*: an empty queue that the broker deletes when no worker has
used it for the grace of that version. A broker does not list its queues to clients, so a journal
names the markers, and the work queues that each version takes from.

A journal can be deleted or purged, and markers expire while the broker is down. So each worker
names its versions again when the journal is empty, and a version that a worker has seen counts as
alive until it has been missing for longer than its workers need to name it again.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import msgspec
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from headway.adapters.rabbitmq import declaring, journal
from headway.adapters.rabbitmq.desk import NOT_FOUND, Desk, is_refused
from headway.adapters.rabbitmq.errands import Errands
from headway.adapters.rabbitmq.topology import VERSIONS, marker, marker_queue, versions_queue
from headway.ports.clock import Clock

_LOG = logging.getLogger("headway")
_USES = 5
"""In one grace."""
_USED_EVERY = timedelta(minutes=1)
_NAMED_AGAIN_WITHIN = timedelta(seconds=5)
"""The least time in which the workers of a version come back after an outage."""


class Entry(msgspec.Struct, frozen=True):
    """One version of a service."""

    version: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Own:
    entry: Entry
    grace: timedelta

    @property
    def used_every(self) -> timedelta:
        return min(self.grace / _USES, _USED_EVERY)


@dataclass(slots=True)
class _Seen:
    entry: Entry
    missing_since: datetime | None = None


Entries = dict[str, Entry]
_ENTRIES = msgspec.json.Decoder(Entries)
_NONE = msgspec.json.encode(Entries())


class Versions:
    """The versions that this process runs, and those that it sees."""

    def __init__(self, desk: Desk, errands: Errands, clock: Clock) -> None:
        self._desk = desk
        self._errands = errands
        self._clock = clock
        self._own: dict[str, _Own] = {}
        """By marker."""
        self._seen: dict[str, _Seen] = {}
        """The versions that this process has found alive, by marker."""
        self.using: asyncio.Task[None] | None = None
        """Uses the markers, so that the broker keeps them."""

    async def announce(
        self, service: str, version: str, queues: Sequence[str], grace: timedelta
    ) -> None:
        own = _Own(Entry(version, tuple(queues)), grace)
        self._own[marker(service, version)] = own
        await self._desk.run(partial(self._use, name=True))
        if self.using is None:
            self.using = self._errands.send(self._use_markers())

    async def live(self, queue: str) -> Collection[str]:
        entries = await self._find()
        return {each.version for each in entries if queue in each.queues}

    async def _find(self) -> Collection[Entry]:
        """Read the journal; add what is missing from it for a short time only."""
        entries = await self._desk.run(self._read)
        if not self._own:
            return entries.values()
        now, longest = self._clock.now(), max(1.5 * self._used_every(), _NAMED_AGAIN_WITHIN)
        self._seen |= {name: _Seen(entry) for name, entry in entries.items()}
        for name, seen in tuple(self._seen.items()):
            if name in entries:
                continue
            seen.missing_since = since = seen.missing_since or now
            if not timedelta() <= now - since < longest:
                del self._seen[name]
        return [each.entry for each in self._seen.values()]

    def _used_every(self) -> timedelta:
        return min(own.used_every for own in self._own.values())

    async def _use_markers(self) -> None:
        while True:
            await self._clock.wait(self._used_every())
            await self._errands.insist(partial(self._desk.run, self._use))
            await self._errands.insist(self._find)

    def _use(self, channel: BlockingChannel, *, name: bool = False) -> None:
        """Use each marker; name it in the journal if it is new, or one of the two was lost."""
        connection = channel.connection
        named: Entries = {}
        name = name or journal.is_empty(channel, VERSIONS)
        for queue, own in self._own.items():
            is_there = _is_used(channel, queue)
            if not is_there:
                expires = own.grace + own.used_every
                declaring.declare_queue(connection.channel(), marker_queue(queue, expires))
            if name or not is_there:
                named[queue] = own.entry
        if named:
            self._open_journal(channel)
            writing = connection.channel()
            writing.confirm_delivery()
            journal.append(writing, VERSIONS, msgspec.json.encode(named))
            writing.close()

    def _open_journal(self, channel: BlockingChannel) -> None:
        if not journal.is_there(channel, VERSIONS):
            limited = declaring.has_default_limit(channel)
            opening = channel.connection.channel()
            declaring.declare_queue(opening, versions_queue(has_default_limit=limited))
            journal.start(opening, VERSIONS, _NONE)

    def _read(self, channel: BlockingChannel) -> Entries:
        if not journal.is_there(channel, VERSIONS):
            return {}  # no worker has announced anything; a reader declares nothing
        return _ENTRIES.decode(journal.read(channel, VERSIONS, partial(self._merge, channel)))

    def _merge(self, channel: BlockingChannel, bodies: Sequence[bytes]) -> bytes:
        """Keep the versions whose markers are there; those of this process always are."""
        merged: Entries = {}
        for body in bodies:
            merged |= _decoded(body)
        own = {queue: each.entry for queue, each in self._own.items()}
        others = {
            queue: entry
            for queue, entry in merged.items()
            if queue not in own and journal.is_there(channel, queue)
        }
        return msgspec.json.encode(others | own)


def _is_used(channel: BlockingChannel, queue: str) -> bool:
    """Use a marker, which starts its time anew; False: it is not there."""
    using = channel.connection.channel()
    try:
        using.basic_get(queue, auto_ack=True)
    except ChannelClosedByBroker as error:
        if is_refused(error, NOT_FOUND):
            return False
        raise
    using.close()
    return True


def _decoded(body: bytes) -> Entries:
    try:
        return _ENTRIES.decode(body)
    except msgspec.MsgspecError as error:
        _LOG.error("A message in %s names no versions: %s", VERSIONS, error)
        return {}
