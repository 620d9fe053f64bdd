"""Sequences in memory: the core's own machine, and a dictionary. For tests and demonstrations."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from msgspec.structs import replace

from headway.adapters.memory.history import MemoryHistory
from headway.core.sequence import Sequencer
from headway.core.sequence_answers import (
    Completed,
    Completion,
    Look,
    Looked,
    Offer,
    Offered,
    Turn,
)
from headway.core.sequence_settings import DEFAULT_NAME, SequenceSettings
from headway.core.sequence_state import KeyState, changes
from headway.core.sequence_waiting import due
from headway.ports.clock import Clock
from headway.ports.history import History
from headway.ports.sequences import HeldResult, Reading

T = TypeVar("T")
A = TypeVar("A", Offered, Completed, Looked)

_NEVER = datetime.max.replace(tzinfo=UTC)
_UNKNOWN = KeyState()


@dataclass(slots=True, eq=False)
class MemoryShelf:
    """What outlives a worker; give the same one to several."""

    states: dict[str, KeyState] = field(default_factory=dict)
    payloads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    due: dict[str, datetime] = field(default_factory=dict)
    """Of every key that holds something."""
    notes: list[bytes] = field(default_factory=list)
    """What operators changed."""


class MemorySequences:
    """Nothing here waits, so every call is one step for all tasks of the event loop."""

    def __init__(
        self,
        clock: Clock,
        settings: SequenceSettings | None = None,
        shelf: MemoryShelf | None = None,
    ) -> None:
        self.settings = settings or SequenceSettings()
        self._machine = Sequencer(self.settings)
        self._clock = clock
        self._shelf = shelf or MemoryShelf()
        self.family = DEFAULT_NAME
        self.history: History = MemoryHistory(self._shelf.notes)

    async def offer(self, offers: Sequence[Offer]) -> Sequence[Offered]:
        return [self._offer(offer) for offer in offers]

    async def complete(self, done: Sequence[Completion]) -> Sequence[Completed]:
        return [self._complete(each) for each in done]

    async def look(self, looks: Sequence[Look]) -> Sequence[Looked]:
        return [self._look(look) for look in looks]

    async def due(self, limit: int) -> Sequence[str]:
        now, all_due = self._clock.now(), self._shelf.due
        waiting = [(at, key) for key, at in all_due.items() if at <= now]
        keys = [key for _, key in heapq.nsmallest(limit, waiting)]
        all_due.update((key, now + self.settings.lease) for key in keys)
        return keys

    async def give_back(self, offer: Offer, delay: timedelta | None = None) -> timedelta | None:
        def give_back(state: KeyState, now: datetime) -> tuple[KeyState, timedelta | None]:
            return self._machine.give_back(state, offer, now, delay)

        return self._step(offer.key, give_back, offer.payload)

    async def renew(self, work: Turn) -> bool:
        done = Completion(work.key, work.position, work.token)
        return self._step(work.key, lambda state, now: self._machine.renew(state, done, now))

    async def read(self, key: str) -> Reading:
        return Reading(key, self._shelf.states.get(key, _UNKNOWN), self._clock.now())

    async def held(self, key: str, limit: int) -> Sequence[HeldResult]:
        results = sorted(self._shelf.payloads.get(key, {}).items())
        return [HeldResult(*result) for result in results[:limit]]

    async def waiting(self, limit: int) -> tuple[int, Sequence[str]]:
        first = heapq.nsmallest(limit, ((at, key) for key, at in self._shelf.due.items()))
        return len(self._shelf.due), [key for _, key in first]

    async def drain(self, key: str) -> bool:
        if not self._shelf.states.get(key, _UNKNOWN).held:
            return False
        self._step(key, lambda state, _now: (self._machine.drain(state), None))
        return True

    async def families(self) -> Sequence[str] | None:
        return None  # a shelf has no name

    async def forget(self, key: str) -> int:
        dropped = len(self._shelf.states.pop(key, _UNKNOWN).held)
        self._shelf.payloads.pop(key, None)
        self._shelf.due.pop(key, None)
        return dropped

    async def close(self) -> None:
        """Nothing is open."""

    def _offer(self, offer: Offer) -> Offered:
        def step(state: KeyState, now: datetime) -> tuple[KeyState, Offered]:
            return self._machine.offer(state, offer, now)

        return self._filled(self._step(offer.key, step, offer.payload))

    def _complete(self, done: Completion) -> Completed:
        def step(state: KeyState, now: datetime) -> tuple[KeyState, Completed]:
            return self._machine.complete(state, done, now)

        return self._filled(self._step(done.key, step))

    def _look(self, look: Look) -> Looked:
        def step(state: KeyState, now: datetime) -> tuple[KeyState, Looked]:
            return self._machine.expire(state, look, now)

        return self._filled(self._step(look.key, step))

    def _step(
        self,
        key: str,
        step: Callable[[KeyState, datetime], tuple[KeyState, T]],
        payload: bytes = b"",
    ) -> T:
        shelf, now = self._shelf, self._clock.now()
        before = shelf.states.get(key, _UNKNOWN)
        after, answer = step(before, now)
        if after == before and not isinstance(answer, Looked):
            return answer
        if after != _UNKNOWN:
            shelf.states[key] = after
        written, removed = changes(before, after)
        payloads = shelf.payloads.setdefault(key, {})
        for held in written:
            payloads.setdefault(held.position, payload)
        for position in removed:
            del payloads[position]
        if after.held:
            shelf.due[key] = due(after, self.settings, now) or _NEVER
        else:
            shelf.due.pop(key, None)
            shelf.payloads.pop(key, None)
        return answer

    def _filled(self, answer: A) -> A:
        work = answer.work
        if work is None or not work.held:
            return answer
        payload = self._shelf.payloads[work.key][work.position]
        return replace(answer, work=replace(work, payload=payload))
