"""Ports whose process is killed before or after the n-th durable step."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from headway.testing.engines import SqliteStore
from headway.testing.ports import Engine, Message

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


class Doomed:
    """A port of a process that will be killed; `steps` names its durable calls."""

    def __init__(self, inner: Any, doom: Doom, **steps: str) -> None:
        self.inner = inner
        self._doom = doom
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)
        if name not in self._steps:
            return call
        return lambda *args: self._doom.step(self._steps[name], lambda: call(*args))


class DoomedLetters(Doomed):
    """Letters as a broker has them: a requeue publishes first, and removes the letter then."""

    def __init__(self, parts: Engine, doom: Doom) -> None:
        super().__init__(parts.letters, doom, write="write letters", remove="remove letters")
        self._bus = parts.bus

    async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
        there = await self.inner.read(queue, 1_000)
        if letter_id not in {letter.letter_id for letter in there}:
            return False
        await self._doom.step("publish again", lambda: self._bus.publish([message]))
        removed = await self._doom.step(
            "remove letter", lambda: self.inner.remove(queue, [letter_id])
        )
        return bool(removed == 1)


def doomed_store(store: SqliteStore, doom: Doom) -> Any:
    made: Any = Doomed(store, doom, commit="commit", requeued="requeued", purged="purged")
    made.records = Doomed(store.records, doom, dispatched="dispatched")
    return made


def doomed(parts: Engine, doom: Doom) -> Engine:
    bus: Any = Doomed(parts.bus, doom, publish="publish", settle="settle")
    letters: Any = DoomedLetters(parts, doom)
    return replace(parts, bus=bus, letters=letters)
