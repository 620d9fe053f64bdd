"""Suspects: which worker started them, and whether that worker died of it.

The event itself stays where it is. A note in a journal of its service says which worker starts it,
and counts once that worker is gone. A worker that is alive has a queue exclusive to its connection,
or will have it again soon. A second note ends the first one, by its id: so notes can be read in any
order, and any number of times.

The broker counts a return also when only a connection was lost. A worker that lost its connection
and lives notes which events it held, and at which return: these returns do not make a suspect.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from hashlib import sha256

import msgspec
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from headway.adapters.rabbitmq import journal
from headway.adapters.rabbitmq.desk import LOCKED, Desk, is_refused
from headway.adapters.rabbitmq.outgoing import DIRECT, Outgoing
from headway.adapters.rabbitmq.topology import worker_queue
from headway.core.errors import NotPublishedError
from headway.ports.bus import SUSPECT_AFTER, Delivery
from headway.ports.clock import Clock

_LOG = logging.getLogger("headway")
_GRAVE = 2
_STARTS_KEPT = timedelta(days=7).total_seconds()
"""Of an event that was removed by hand, and has no end."""
_ENDS_KEPT = timedelta(minutes=10).total_seconds()
"""A broker that was killed may give back a note that was removed; its end has to be known then."""
_EXCUSES_KEPT = timedelta(hours=1).total_seconds()
_MOST_EXCUSES = 10_000
"""One more than this, and an event that comes back may run alone, which is only slower."""

Held = tuple[int, int]
Send = Callable[[Sequence[Outgoing]], Awaitable[Sequence[bool]]]


class Start(msgspec.Struct, frozen=True):
    """A worker starts a suspect."""

    event: str
    worker: str
    at: float


class Notes(msgspec.Struct, frozen=True):
    """Starts of suspects that have no end yet; ends, each by the id of its start; and excuses."""

    starts: dict[str, Start] = {}
    ends: dict[str, float] = {}
    excused: dict[str, float] = {}
    """Returns of events whose worker lost its connection and lives, and when it noted that."""


_NOTES = msgspec.json.Decoder(Notes)
NO_NOTES = msgspec.json.encode(Notes())


class Suspects:
    """The starts of one worker, and what it knows of the starts of others.

    Args:
        desk: For reading notes.
        send: Publishes messages, confirmed, and says whether a queue took each.
        clock: For the age of notes.
        token: Of this worker.
        journal_of: Names the journal for the events of a work queue.
        time_to_come_back: How long a worker that lost its connection has to come back.
    """

    def __init__(
        self,
        desk: Desk,
        send: Send,
        clock: Clock,
        token: str,
        *,
        journal_of: Callable[[str], str],
        time_to_come_back: timedelta,
    ) -> None:
        self._desk = desk
        self._send = send
        self._clock = clock
        self._token = token
        self._journal_of = journal_of
        self._time_to_come_back = time_to_come_back
        self._counted: dict[Held, Collection[str]] = {}
        """Ids of the starts of an event that is in hand."""
        self._started: dict[Held, Delivery] = {}
        self._excused: dict[str, float] = {}
        """Returns that count for nothing, as far as is known here, and since when."""

    @property
    def noted(self) -> Collection[Held]:
        """Events in hand about which there are notes; mostly there are none."""
        return {*self._started, *self._counted}

    async def count(self, delivery: Delivery) -> int:
        """Count the starts by workers that are gone."""
        counting = partial(
            self._count, queue=self._journal_of(delivery.queue), event=_name(delivery)
        )
        count, ids = await self._desk.run(counting)
        if count >= _GRAVE:
            # A worker that lost its connection and not its life may still be coming back.
            await self._clock.wait(self._time_to_come_back)
            count, ids = await self._desk.run(counting)
        if ids:
            self._counted[delivery.receipt] = ids
        return count

    async def begin(self, delivery: Delivery) -> None:
        """Note durably that this worker starts an event. To repeat this is no second start."""
        held = delivery.receipt
        at = self._clock.now().timestamp()
        start = Start(_name(delivery), self._token, at)
        self._started[held] = delivery
        await self._append(delivery.queue, Notes(starts={self._id(held): start}))

    async def end(self, delivery: Delivery, *, taken_back: bool) -> None:
        """Note that an event has an end; or that nothing happened to it, and take a start back."""
        held = delivery.receipt
        ids = {self._id(held)} if held in self._started else set()
        if not taken_back:
            ids.update(self._counted.get(held, ()))
        if ids:
            at = self._clock.now().timestamp()
            await self._append(delivery.queue, Notes(ends=dict.fromkeys(sorted(ids), at)))
        self._started.pop(held, None)
        self._counted.pop(held, None)

    def forget(self, delivery: Delivery) -> None:
        """Forget what was counted: the event belongs to another worker by now."""
        self._counted.pop(delivery.receipt, None)

    def started(self) -> list[Delivery]:
        """Give what this worker started and noted no end of."""
        return list(self._started.values())

    # Returns that count for nothing

    def is_excused(self, delivery: Delivery) -> bool:
        """Say whether so many returns are known to be of living workers that it is no suspect."""
        excused, name = self._excused, _name(delivery)
        known = sum(_return(name, number) in excused for number in range(delivery.returns))
        return delivery.returns - known < SUSPECT_AFTER

    def excuse(self, lost: Sequence[Delivery]) -> dict[str, Notes]:
        """Excuse what this worker lost with its connection; give the notes, by work queue."""
        at = self._clock.now().timestamp()
        notes: dict[str, Notes] = {}
        for each in lost:
            name = _return(_name(each), each.returns)
            notes.setdefault(each.queue, Notes(excused={})).excused[name] = at
            self._excused[name] = at
        return notes

    async def tell(self, queue: str, notes: Notes) -> None:
        """Have other workers know of notes."""
        await self._append(queue, notes)

    async def learn(self, queues: Collection[str]) -> None:
        """Read what other workers excused."""
        for name in {self._journal_of(each) for each in queues}:
            notes = await self._desk.run(partial(self._read, queue=name))
            self._excused = _newest(
                {**self._excused, **notes.excused}, self._clock.now().timestamp()
            )

    def _read(self, channel: BlockingChannel, queue: str) -> Notes:
        return _NOTES.decode(journal.read(channel, queue, self._merge))

    def _id(self, held: Held) -> str:
        epoch, tag = held
        return f"{self._token}.{epoch}.{tag}"

    async def _append(self, queue: str, notes: Notes) -> None:
        name = self._journal_of(queue)
        note = Outgoing(DIRECT, name, msgspec.json.encode(notes), journal.properties())
        (routed,) = await self._send([note])
        if not routed:
            raise NotPublishedError(f"no queue took a note for {name!r}: it was deleted")

    def _count(
        self, channel: BlockingChannel, queue: str, event: str
    ) -> tuple[int, Collection[str]]:
        notes = self._read(channel, queue)
        starts = {name: start for name, start in notes.starts.items() if start.event == event}
        gone = [start for start in starts.values() if not self._is_alive(channel, start.worker)]
        return len(gone), starts.keys()

    def _is_alive(self, channel: BlockingChannel, worker: str) -> bool:
        if worker == self._token:
            return True
        asking = channel.connection.channel()
        try:
            asking.queue_declare(worker_queue(worker), passive=True)
        except ChannelClosedByBroker as error:
            return is_refused(error, LOCKED)
        asking.close()
        return True

    def _merge(self, bodies: Sequence[bytes]) -> bytes:
        now = self._clock.now().timestamp()
        starts: dict[str, Start] = {}
        ends: dict[str, float] = {}
        excused: dict[str, float] = {}
        for notes in map(_decoded, bodies):
            starts |= notes.starts
            ends |= notes.ends
            excused |= notes.excused
        return msgspec.json.encode(
            Notes(
                starts={
                    name: start
                    for name, start in starts.items()
                    if name not in ends and now - start.at < _STARTS_KEPT
                },
                ends={name: at for name, at in ends.items() if now - at < _ENDS_KEPT},
                excused=_newest(excused, now),
            )
        )


def _decoded(body: bytes) -> Notes:
    try:
        return _NOTES.decode(body)
    except msgspec.MsgspecError as error:
        _LOG.error("A message in a journal of starts is no note: %s", error)
        return Notes()


def _newest(excused: Mapping[str, float], now: float) -> dict[str, float]:
    kept = [(at, name) for name, at in excused.items() if now - at < _EXCUSES_KEPT]
    return {name: at for at, name in sorted(kept)[-_MOST_EXCUSES:]}


def _return(name: str, number: int) -> str:
    """Name one return of an event: the first has the number 0."""
    return f"{name}.{number}"


def _name(delivery: Delivery) -> str:
    """Name an event, as short as any other."""
    travel = delivery.travel
    operation = travel.operation or sha256(delivery.body).hexdigest()
    queue = delivery.queue
    named = f"{len(queue)}:{queue}{len(operation)}:{operation}{travel.generation}"
    return sha256(named.encode()).hexdigest()[:24]
