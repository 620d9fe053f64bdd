"""The "disk" of the memory engine: what is still there when a worker dies.

Nothing here waits, so every method is one step for all tasks of the event loop.
"""

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headway.adapters.memory.kept import Forgotten, Held, Kept
from headway.core.errors import ConfigurationError
from headway.core.event import FIRST_GENERATION, is_first_run
from headway.core.letter import Letter
from headway.core.travel import Travel
from headway.ports.bus import Delivery, Done, HandedBack, Later, Message, Parked, Queue, Then
from headway.ports.records import DoneRecord, Ended
from headway.ports.unrouted import MALFORMED, UnroutedEvent

Owned = tuple[str, str]
"""A queue and an operation in it: what is accepted, and what has one place.

For an unrouted event a name that no queue can have stands in place of the queue.
"""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True, kw_only=True, eq=False)
class Item:
    """An event in a queue, whoever has it at the moment."""

    number: int
    """In the order of arrival."""
    queue: str
    body: bytes
    travel: Travel
    due: datetime
    parked: bool = False
    returns: int = 0
    begins: int = 0
    begun: bool = False
    """By the present taker."""
    taker: object | None = None
    token: str = ""

    @property
    def owned(self) -> Owned:
        return self.queue, self.travel.operation

    def release(self) -> None:
        self.taker, self.token, self.begun = None, "", False


@dataclass(slots=True, eq=False)
class Announced:
    """A version of a service that a worker runs, for one of its queues."""

    bus: object
    version: str
    queue: str
    grace: timedelta
    seen: datetime
    """When its worker was last seen alive."""


@dataclass(slots=True, eq=False)
class State:
    """Queues, items, letters, records and documents; give the same one to several engines."""

    queues: dict[str, Queue] = field(default_factory=dict)
    items: dict[int, Item] = field(default_factory=dict)
    accepted: dict[Owned, None] = field(default_factory=dict)
    """A set that keeps its order."""
    unrouted: dict[Owned, UnroutedEvent] = field(default_factory=dict)
    """In the order of arrival."""
    letters: dict[str, dict[str, Letter]] = field(default_factory=dict)
    """By failed queue and letter id, in the order of arrival."""
    records: dict[str, Kept] = field(default_factory=dict)
    forgotten: Forgotten = field(default_factory=Forgotten)
    documents: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """As JSON: nothing can be kept here that no real store would take."""
    leases: dict[str, Held] = field(default_factory=dict)
    totals: dict[str, dict[str, float]] = field(default_factory=dict)
    """By group and name."""
    notes: list[bytes] = field(default_factory=list)
    """What operators did, as JSON."""
    tables: dict[str, Any] = field(default_factory=dict)
    """What `work.transaction` is given: a place for tables of the user's own."""
    workers: dict[object, None] = field(default_factory=dict)
    """Buses that are open and alive."""
    gone: set[object] = field(default_factory=set)
    """Buses that were closed or whose process died: they get nothing any more."""
    versions: dict[tuple[object, str], Announced] = field(default_factory=dict)
    """By worker and queue."""
    names: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    """Numbers for the names of buses."""
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _waiting: set["asyncio.Future[None]"] = field(default_factory=set)

    # Queues

    def declare(self, queues: Iterable[Queue], now: datetime) -> Counter[str]:
        """Declare queues, move what was unrouted and is taken by one of them, and count that."""
        types = [event_type for queue in queues for event_type in self._declare(queue)]
        return self.route(types, now)

    def _declare(self, queue: Queue) -> Sequence[str]:
        """Add what a queue takes to what it took before: others may still rely on that."""
        known = self.queues.get(queue.name)
        types = (*known.event_types, *queue.event_types) if known else queue.event_types
        self.queues[queue.name] = replace(queue, event_types=tuple(dict.fromkeys(types)))
        self.letters.setdefault(queue.failed, {})
        return queue.event_types

    def routes(self, message: Message) -> list[str]:
        """Name the queues that take a message."""
        if message.queue is None:
            return [q.name for q in self.queues.values() if message.event_type in q.event_types]
        if message.queue not in self.queues:
            known = ", ".join(self.queues) or "none"
            raise ConfigurationError(
                f"queue={message.queue!r} is not accepted: it is not declared (declared: {known})"
            )
        return [message.queue]

    def publish(self, messages: Iterable[Message], now: datetime) -> list[int]:
        """Put messages into the queues that take them, all or none.

        An operation that a queue has accepted is recognised and not put there again, unless
        a person sent it again on purpose. What no queue takes is kept as unrouted, if it needs a
        consumer.
        """
        ways = [(message, self.routes(message)) for message in messages]
        for message, queues in ways:
            if not queues and message.needs_consumer:
                self.keep_unrouted(message, now)
            for queue in queues:
                travel = message.travel
                known = (queue, travel.operation) in self.accepted
                if not (known and is_first_run(travel.generation)):
                    self.put(queue, message.body, travel, now)
        return [len(queues) for _, queues in ways]

    def put(self, queue: str, body: bytes, travel: Travel, now: datetime) -> None:
        """Accept a message for a queue."""
        number = next(self._numbers)
        item = Item(number=number, queue=queue, body=body, travel=travel, due=now)
        self.items[number] = item
        self.accepted[item.owned] = None
        self.changed()

    # Unrouted events

    def keep_unrouted(self, message: Message, now: datetime) -> None:
        """Accept a message that no queue takes."""
        owned = (f"unrouted {message.event_type or MALFORMED}", message.travel.operation)
        if owned in self.accepted:
            return
        self.accepted[owned] = None
        self.unrouted[owned] = UnroutedEvent(
            event_type=message.event_type or MALFORMED,
            body=message.body,
            travel=message.travel,
            at=now,
        )

    def route(self, event_types: Collection[str] | None, now: datetime) -> Counter[str]:
        """Publish unrouted events whose type has a queue by now; say how many of each type."""
        moved: Counter[str] = Counter()
        for owned, event in tuple(self.unrouted.items()):
            message = Message(body=event.body, travel=event.travel, event_type=event.event_type)
            chosen = event_types is None or event.event_type in event_types
            if chosen and self.routes(message):
                del self.unrouted[owned], self.accepted[owned]
                self.publish([message], now)
                moved[event.event_type] += 1
        return moved

    # Deliveries

    def take(
        self,
        queues: Collection[str],
        limit: int,
        *,
        taker: object,
        token: Callable[[], str],
        now: datetime,
    ) -> list[Delivery]:
        """Give what is due to a taker, by due time and then by arrival."""
        free = (i for i in self.items.values() if i.queue in queues and i.taker is None)
        due = heapq.nsmallest(limit, (i for i in free if i.due <= now), key=_age)
        return [self._given(item, taker, token(), now) for item in due]

    def seen(self, bus: object, queues: Iterable[str], now: datetime) -> None:
        """Note that a worker is alive."""
        for queue in queues:
            if (bus, queue) in self.versions:
                self.versions[bus, queue].seen = now

    def live_versions(self, queue: str, now: datetime) -> set[str]:
        """Name the versions that take from a queue and were alive within their grace."""
        return {
            one.version
            for one in self.versions.values()
            if one.queue == queue and (one.bus not in self.gone or now < one.seen + one.grace)
        }

    def _given(self, item: Item, taker: object, token: str, now: datetime) -> Delivery:
        item.taker, item.token = taker, token
        if item.travel.first_seen is None:
            item.travel = msgspec.structs.replace(item.travel, first_seen=now)
        return Delivery(
            queue=item.queue,
            body=item.body,
            travel=item.travel,
            receipt=(item.number, token),
            returns=item.returns,
            begins=item.begins,
        )

    def next_due(self, queues: Collection[str], versions: Mapping[str, str]) -> datetime | None:
        """Say when a worker should look again: when the next free item is due.

        What its own version has refused it leaves to others first, and finds when it looks anyway.
        """
        free = (i for i in self.items.values() if i.queue in queues and i.taker is None)
        due = (
            item.due
            for item in free
            if all(each.version != versions.get(item.queue) for each in item.travel.refusals)
        )
        return min(due, default=None)

    def taken(self, taker: object, delivery: Delivery) -> Item | None:
        """Give the item of a delivery, if it still belongs to its taker."""
        number, token = delivery.receipt
        item = self.items.get(number)
        if item is None or item.taker is not taker or item.token != token:
            return None
        return item

    def settle(self, item: Item, then: Then) -> None:
        match then:
            case Done():
                del self.items[item.number]
            case Later() | Parked():
                item.due, item.travel = then.due, then.travel
                item.parked = isinstance(then, Parked)
                item.returns = item.begins = 0
                item.release()
            case HandedBack(due=due):
                if due is not None:
                    item.due, item.parked = due, False
                    item.travel = then.travel or item.travel
                item.begins -= item.begun
                item.release()
        self.changed()

    def resume(self, queue: str, now: datetime) -> int:
        """Make what is parked in a queue due now."""
        parked = [i for i in self.items.values() if i.queue == queue and i.parked]
        waiting = [item for item in parked if item.taker is None]
        for item in waiting:
            item.due, item.parked = min(item.due, now), False
        self.changed()
        return len(waiting)

    # Records and letters

    def keep(self, record: DoneRecord, letter_id: str, generation: str = FIRST_GENERATION) -> None:
        self.records[record.key] = Kept(record, letter_id, generation)

    def decided(self, queue: str, letter_id: str, ended: Ended) -> bool:
        """Take a letter out, and let the record of its failure say what a person decided."""
        if self.letters.get(queue, {}).pop(letter_id, None) is None:
            return False
        for kept in self.records.values():
            failed = kept.record.ended is Ended.FAILED and kept.record.failed_queue == queue
            if failed and kept.letter_id == letter_id:
                kept.record = msgspec.structs.replace(kept.record, ended=ended)
        return True

    def forget(self, key: str) -> None:
        """Remove a record; where it was the last trace of an operation, only count that."""
        record = self.records.pop(key).record
        owned = (record.queue, record.operation)
        if record.ended is Ended.REQUEUED:  # its end is still to come, or in a later record
            return
        if owned in self.accepted and not self._is_somewhere(owned):
            del self.accepted[owned]
            self.forgotten.done += 1
            self.forgotten.purged += record.ended is Ended.PURGED

    def _is_somewhere(self, owned: Owned) -> bool:
        letters = (letter for queue in self.letters.values() for letter in queue.values())
        records = (kept.record for kept in self.records.values())
        return (
            any(item.owned == owned for item in self.items.values())
            or any((letter.queue, letter.operation) == owned for letter in letters)
            or any((record.queue, record.operation) == owned for record in records)
        )

    # Waiting

    def changed(self) -> None:
        """Wake whoever waits for a change."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    def change(self) -> "asyncio.Future[None]":
        """Give a future that is over at the next change."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        return waiting

    # What happens to workers and brokers; hooks for tests

    def leave(self, bus: object, *, returned: bool, keep: Collection["Item"] = ()) -> None:
        """Take back all that a bus had taken, but for some that it keeps."""
        self.workers.pop(bus, None)
        self.gone.add(bus)
        for item in self.items.values():
            if item.taker is bus and item not in keep:
                item.returns += returned
                item.begins -= item.begun and not returned
                item.release()
        self.changed()

    def crash(self, bus: object) -> None:
        """Let the process of a bus die: all that it had taken comes back, one return higher."""
        self.leave(bus, returned=True)

    def duplicate(self, of: Delivery | str) -> None:
        """Put a second copy of an item into its queue, as brokers do that deliver twice.

        A delivery can be copied even when it is settled: some brokers are that late.
        """
        if isinstance(of, Delivery):
            self.put(of.queue, of.body, of.travel, of.travel.first_seen or _LONG_AGO)
        else:
            item = self._item(of)
            self.put(item.queue, item.body, item.travel, item.due)

    def remove(self, operation: str) -> None:
        """Remove an operation's item as if by hand: nobody takes note of it."""
        del self.items[self._item(operation).number]

    def _item(self, operation: str) -> Item:
        for item in self.items.values():
            if item.travel.operation == operation:
                return item
        raise KeyError(operation)


def _age(item: Item) -> tuple[datetime, int]:
    return item.due, item.number
