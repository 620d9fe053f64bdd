"""The ports as a process sees them: every call is a step at which something can go wrong."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from headway.operations import Letter
from headway.testing.ports import Delivery, Finish, Message, Outcome, Then, Travel, Unit
from tests.chaos.simulation.process import Process

_IDLE = timedelta(seconds=10)
_HARMLESS = frozenset({"gone", "owns", "proven"})
"""They change nothing, so nothing is lost with them."""
_STEPS = {"write": "write letters", "requeued": "decide", "purged": "decide"}
_HALVES = {"finish": 0, "dispatched": 0, "write": 1}
"""Which argument of a call may take effect in part."""


class Faulty:
    """A port of one process. Its calls are steps of their own name, or of the one `step`."""

    def __init__(
        self, process: Process, inner: Any, *, step: str = "", only: Collection[str] = ()
    ) -> None:
        self._process = process
        self._inner = inner
        self._step = step
        self._only = only
        self._faults = process.disks.faults

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not callable(method) or name in _HARMLESS or (self._only and name not in self._only):
            return method

        async def call(*given: Any) -> Any:
            return await self._process.step(
                self._step or _STEPS.get(name, name),
                lambda: method(*given),
                half=self._half(name, method, given),
                about=" ".join(_told(each) for each in given),
            )

        return call

    def _half(
        self, name: str, method: Callable[..., Awaitable[object]], given: Sequence[Any]
    ) -> Callable[[], Awaitable[object]] | None:
        if name not in _HALVES:
            return None
        at = _HALVES[name]
        some = given[at][: self._faults.some(len(given[at]))]
        return lambda: method(*given[:at], some, *given[at + 1 :])


class FaultyBus(Faulty):
    """The bus of one process."""

    def __init__(self, process: Process, seen: list[Delivery]) -> None:
        super().__init__(process, process.bus)
        self._state = process.disks.state
        self._seen = seen

    async def publish(self, messages: Sequence[Message]) -> Sequence[int]:
        some = messages[: self._faults.some(len(messages))]
        return await self._process.step(
            "publish",
            lambda: self._inner.publish(messages),
            # As a bus without `atomic_publish` does.
            half=None if self._state.recognises else lambda: self._inner.publish(some),
            about=_told(messages),
        )

    async def take(
        self, queues: Sequence[str], limit: int, patience: timedelta = timedelta()
    ) -> Sequence[Delivery]:
        if limit < 1:  # engines take this for none, or for no limit at all
            self._process.disks.violated(f"{self._process.name} asks for {limit} events")
        # An idle worker asks every second, which only costs time here.
        patience = _IDLE if patience >= timedelta(seconds=1) else patience
        taken = list(
            await self._process.step("take", lambda: self._inner.take(queues, limit, patience))
        )
        if self._faults.happens(0.3):
            self._faults.random.shuffle(taken)
        if taken:
            self._process.tell("took", _told(taken))
        self._seen.extend(taken)
        return taken

    async def settle(self, settlements: Sequence[tuple[Delivery, Then]]) -> Sequence[bool]:
        some = settlements[: self._faults.some(len(settlements))]

        async def lost() -> Sequence[bool]:
            await self._fenced(some)
            self._state.disconnect(self._inner)
            return [True] * len(settlements)

        return await self._process.step(
            "settle",
            lambda: self._fenced(settlements),
            half=lambda: self._fenced(some),
            ack_lost=lost,
            about=_told(settlements),
        )

    async def _fenced(self, settlements: Sequence[tuple[Delivery, Then]]) -> Sequence[bool]:
        held = [self._state.is_held(delivery) for delivery, _ in settlements]
        settled: Sequence[bool] = await self._inner.settle(settlements)
        for (delivery, _), was_held, took_effect in zip(settlements, held, settled, strict=True):
            if took_effect and not was_held:
                self._process.disks.violated(f"{_told(delivery)}: settled by one who lost it")
        return settled


class Fenced:
    """A finisher of which it is checked that only the holder of an event commits."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._finisher = process.engine.finisher
        self.at_once = self._finisher.at_once

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        state = self._process.disks.state
        held = [state.is_held(unit.delivery) for unit in units]
        finishes = await self._finisher.finish(units)
        for unit, was_held, finish in zip(units, held, finishes, strict=True):
            if finish.outcome is Outcome.COMMITTED and not was_held:
                self._process.disks.violated(f"{_told(unit.delivery)}: committed by a loser")
        _count_refused(self._process, units, finishes)
        return finishes


class FaultyStore:
    """The store's half of the walk in two steps."""

    def __init__(self, process: Process, store: Any) -> None:
        self._process = process
        self._store = store

    async def commit(self, units: Sequence[Unit]) -> Sequence[Finish]:
        some = units[: self._process.disks.faults.some(len(units))]

        async def whole() -> Sequence[Finish]:
            finishes: Sequence[Finish] = await self._store.commit(units)
            _count_refused(self._process, units, finishes)
            return finishes

        return await self._process.step(
            "commit", whole, half=lambda: self._store.commit(some), about=_told(units)
        )


class FaultyLetters(Faulty):
    """The failed queues; where they are not in the store, a requeue is two steps."""

    async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
        two_steps = not self._process.disks.state.recognises
        return await self._process.step(
            "requeue",
            lambda: self._inner.requeue(queue, letter_id, message),
            half=(lambda: self._process.bus.publish([message])) if two_steps else None,
            about=_told(message),
        )


def _count_refused(process: Process, units: Sequence[Unit], finishes: Sequence[Finish]) -> None:
    for unit, finish in zip(units, finishes, strict=True):
        process.tell("outcome", f"{_told(unit.delivery)} {finish.outcome}")
        if finish.outcome is Outcome.REFUSED:
            process.disks.state.refused_once(unit.delivery)


def _told(given: Any) -> str:
    """Say shortly what a step is about."""
    told = ""
    match given:
        case str():
            told = given
        case Unit():
            end = given.record.ended if given.record else type(given.then).__name__
            told = f"{_told(given.delivery)}={'known:' if given.resumes else ''}{end}"
        case Delivery():
            more = f" r{given.returns} b{given.begins}" if given.returns else ""
            told = f"{_told(given.travel)}#{given.receipt[0]}({given.travel.attempt}{more})"
        case Travel():
            generation = "" if given.generation == "0" else f"~{given.generation[:4]}"
            told = given.operation[:8] + generation
        case Message():
            told = f"{given.event_type}:{_told(given.travel)}"
        case Letter():
            told = f"{given.operation}/{given.generation}"
        case (Delivery() as delivery, then):
            told = f"{_told(delivery)}={type(then).__name__}"
        case Mapping() | Sequence():
            told = " ".join(map(_told, given))
    return told
