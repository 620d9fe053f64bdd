"""Ports whose process is killed before or after the n-th durable step."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from headway.operations import FailedQueue, Letter
from headway.testing.engines import SqliteStore
from headway.testing.ports import (
    Delivery,
    DoneRecord,
    DoneRecords,
    Finish,
    Letters,
    Message,
    Then,
    Unit,
)
from tests.engines.pairs.harnesses import Parts

T = TypeVar("T")


class KilledError(BaseException):
    """The process is gone; no `except Exception` makes it go on."""


class Doom:
    """Kills at one point of all: before the first step, after it, before the second, and so on."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.points = 0
        self.steps: list[str] = []

    async def step(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self._point()
        answer = await call()
        self.steps.append(name)
        self._point()
        return answer

    def _point(self) -> None:
        self.points += 1
        if self.points == self.at:
            raise KilledError


class DoomedBus:
    """The bus of a process that will be killed."""

    def __init__(self, bus: Any, doom: Doom) -> None:
        self.inner = bus
        self._doom = doom

    async def publish(self, messages: Sequence[Message]) -> Sequence[int]:
        return await self._doom.step("publish", lambda: self.inner.publish(messages))

    async def settle(self, settlements: Sequence[tuple[Delivery, Then]]) -> Sequence[bool]:
        return await self._doom.step("settle", lambda: self.inner.settle(settlements))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class DoomedLetters:
    """Letters as a broker has them: a requeue publishes first, and removes the letter then."""

    def __init__(self, letters: Letters, bus: Any, doom: Doom) -> None:
        self._letters = letters
        self._bus = bus
        self._doom = doom

    async def queues(self) -> Sequence[FailedQueue]:
        return await self._letters.queues()

    async def read(self, queue: str, limit: int, after: str | None = None) -> Sequence[Letter]:
        return await self._letters.read(queue, limit, after)

    async def write(self, queue: str, letters: Sequence[Letter]) -> None:
        await self._doom.step("write letters", lambda: self._letters.write(queue, letters))

    async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
        there = await self._letters.read(queue, 1_000)
        if letter_id not in {letter.letter_id for letter in there}:
            return False
        await self._doom.step("publish again", lambda: self._bus.publish([message]))
        removed = await self._doom.step(
            "remove letter", lambda: self._letters.remove(queue, [letter_id])
        )
        return removed == 1

    async def remove(self, queue: str, letter_ids: Sequence[str]) -> int:
        return await self._doom.step(
            "remove letters", lambda: self._letters.remove(queue, letter_ids)
        )


class DoomedRecords:
    """The records of a process that will be killed."""

    def __init__(self, records: DoneRecords, doom: Doom) -> None:
        self._records = records
        self._doom = doom

    async def find(self, keys: Sequence[str]) -> Mapping[str, DoneRecord]:
        return await self._records.find(keys)

    async def undispatched(self, before: datetime, limit: int) -> Sequence[DoneRecord]:
        return await self._records.undispatched(before, limit)

    async def dispatched(self, keys: Sequence[str]) -> None:
        await self._doom.step("dispatched", lambda: self._records.dispatched(keys))

    async def forget(self, before: datetime, limit: int) -> int:
        return await self._records.forget(before, limit)


class DoomedStore:
    """The store of a process that will be killed."""

    def __init__(self, store: SqliteStore, doom: Doom) -> None:
        self._store = store
        self._doom = doom
        self.records = DoomedRecords(store.records, doom)
        self.documents = store.documents
        self.ends = store.ends
        self.history = store.history
        self.sweeping = store.sweeping
        self.aside = store.aside

    async def commit(self, units: Sequence[Unit]) -> Sequence[Finish]:
        return await self._doom.step("commit", lambda: self._store.commit(units))

    async def requeued(self, failed_queue: str, letter_id: str, to: str | None) -> None:
        await self._doom.step("requeued", lambda: self._store.requeued(failed_queue, letter_id, to))

    async def purged(self, failed_queue: str, letter_ids: Sequence[str]) -> None:
        await self._doom.step("purged", lambda: self._store.purged(failed_queue, letter_ids))

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        await self._store.close()


def doomed(parts: Parts, doom: Doom) -> Parts:
    bus: Any = DoomedBus(parts.bus, doom)
    letters = DoomedLetters(parts.letters, parts.bus, doom)
    return Parts(bus, letters, parts.places, parts.unrouted, parts.history)
