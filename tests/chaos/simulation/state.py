"""The disks of a simulated world: the memory engine's, with a count of what happened to each event.

The counts are the checker's own knowledge: nothing of the runtime reads them.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headway.testing.engines import State
from headway.testing.ports import Delivery, Ended, HandedBack, Message, Parked, Then, Travel

Run = tuple[str, str, str]
"""A queue, an operation and its generation."""


WITHOUT_PLACE = frozenset({Ended.FAILED, Ended.REQUEUED})
"""Records that say that the operation is elsewhere: in its letter, or in a queue again."""


def run_of(queue: str, travel: Travel) -> Run:
    return queue, travel.operation, travel.generation


@dataclass(slots=True, eq=False)
class WatchedState(State):
    """Counts copies, returns, parkings and refusals of every run."""

    recognises: bool = True
    """Whether a second publish of an operation is recognised, as an engine with a table can."""
    copies: Counter[Run] = field(default_factory=Counter)
    returned: Counter[Run] = field(default_factory=Counter)
    handed_back: Counter[Run] = field(default_factory=Counter)
    parked: Counter[Run] = field(default_factory=Counter)
    refused: Counter[Run] = field(default_factory=Counter)

    def publish(self, messages: Iterable[Message], now: datetime) -> list[int]:
        if self.recognises:
            return State.publish(self, messages, now)
        ways = [(message, self.routes(message)) for message in messages]
        for message, queues in ways:
            if not queues and message.needs_consumer:
                self.keep_unrouted(message, now)
            for queue in queues:
                self.put(queue, message.body, message.travel, now)
        return [len(queues) for _, queues in ways]

    def put(self, queue: str, body: bytes, travel: Travel, now: datetime) -> None:
        State.put(self, queue, body, travel, now)
        self.copies[run_of(queue, travel)] += 1

    def decided(self, queue: str, letter_id: str, ended: Ended) -> bool:
        if self.recognises:
            return State.decided(self, queue, letter_id, ended)
        # A broker knows nothing of records.
        return self.letters.get(queue, {}).pop(letter_id, None) is not None

    def settle(self, item: Any, then: Then) -> None:
        run = run_of(item.queue, item.travel)
        self.parked[run] += isinstance(then, Parked)
        self.handed_back[run] += isinstance(then, HandedBack)
        State.settle(self, item, then)

    def leave(self, bus: object, *, returned: bool, keep: Collection[Any] = ()) -> None:
        counts = self.returned if returned else self.handed_back
        for item in self.items.values():
            if item.taker is bus and item not in keep:
                counts[run_of(item.queue, item.travel)] += 1
        State.leave(self, bus, returned=returned, keep=keep)

    def disconnect(self, bus: object) -> None:
        """Lose a connection: what was taken over it comes back, and a new one is made at once."""
        self.leave(bus, returned=True)
        self.gone.discard(bus)
        self.workers[bus] = None

    def refused_once(self, delivery: Delivery) -> None:
        """Count a commit that was refused: the handler may run again within its attempt."""
        self.refused[run_of(delivery.queue, delivery.travel)] += 1

    def is_held(self, delivery: Delivery) -> bool:
        """Say whether a delivery has not been given to anybody else since, nor settled."""
        number, token = delivery.receipt
        item = self.items.get(number)
        return item is not None and item.token == token


def nowhere(state: State) -> set[tuple[str, str]]:
    """Give what was accepted and is neither in a queue, nor in a letter, nor at its end."""
    there = {item.owned for item in state.items.values()}
    there.update(
        (letter.queue, letter.operation)
        for letters in state.letters.values()
        for letter in letters.values()
    )
    records = (kept.record for kept in state.records.values())
    there.update((r.queue, r.operation) for r in records if r.ended not in WITHOUT_PLACE)
    return state.accepted.keys() - there
