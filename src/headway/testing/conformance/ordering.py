"""What the suites about sequences have in common: a harness, and results that are offered."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import timedelta

from headway.core.sequence_answers import Completed, Completion, Look, Looked, Offer, Offered, Turn
from headway.core.sequence_settings import SequenceSettings
from headway.ports.sequences import SequenceEngine
from headway.testing.clock import VirtualClock

SECOND = timedelta(seconds=1)
KEY = "sub"


class SequencesHarness(ABC):
    """One storage, empty at first, and engines that come and go on it like worker processes."""

    clock: VirtualClock
    """The one that the engines were given."""

    @abstractmethod
    async def open_sequences(self, settings: SequenceSettings) -> SequenceEngine:
        """Give an engine on the same storage as all the others, as a new process has it."""

    @abstractmethod
    async def close(self) -> None:
        """Close all that was opened."""


class Worker:
    """A worker with an engine of its own, who offers and completes one result at a time."""

    def __init__(self, engine: SequenceEngine, clock: VirtualClock, name: str) -> None:
        self.engine = engine
        self._clock = clock
        self._name = name
        self._offers = 0

    def token(self) -> str:
        self._offers += 1
        return f"{self._name}-{self._offers}"

    def made(self, position: int, **more: object) -> Offer:
        values: dict[str, object] = {
            "key": KEY,
            "payload": payload(position),
            "token": self.token(),
            **more,
        }
        return Offer(position=position, **values)  # type: ignore[arg-type]

    async def offer(self, position: int, **more: object) -> Offered:
        (answer,) = await self.engine.offer([self.made(position, **more)])
        return answer

    async def complete(self, work: Turn | None) -> Completed:
        assert work is not None
        (answer,) = await self.engine.complete([Completion(work.key, work.position, work.token)])
        return answer

    async def look(self, key: str = KEY, **more: object) -> Looked:
        (answer,) = await self.engine.look([Look(key, self.token(), **more)])  # type: ignore[arg-type]
        return answer

    async def drained(self, work: Turn | None) -> list[Turn]:
        """Do work and all that is handed out after it, and give it in that order."""
        done: list[Turn] = []
        while work is not None:
            done.append(work)
            answer = await self.complete(work)
            assert answer.accepted
            work = answer.work
        return done

    async def process(self, *offered: int, **more: object) -> list[int]:
        """Offer results one after another, do all the work, and name what was done."""
        done: list[int] = []
        for position in offered:
            answer = await self.offer(position, **more)
            done += positions(await self.drained(answer.work))
        return done

    async def marker(self, key: str = KEY) -> int | None:
        return (await self.engine.read(key)).state.marker

    def passes(self, seconds: float) -> None:
        self._clock.advance(seconds * SECOND)


def payload(position: int) -> bytes:
    return b'{"result": %d}' % position


def positions(works: Iterable[Turn]) -> list[int]:
    return [work.position for work in works]


def gap_of(work: Turn | None) -> list[int]:
    assert work is not None
    return [] if work.gap is None else list(work.gap.positions())


async def worker(
    harness: SequencesHarness, name: str = "w", settings: SequenceSettings | None = None
) -> Worker:
    engine = await harness.open_sequences(settings or SequenceSettings())
    return Worker(engine, harness.clock, name)


async def standing_before(
    harness: SequencesHarness, *held: int, settings: SequenceSettings | None = None
) -> Worker:
    """Give a worker whose key has applied position 1 and holds these."""
    ours = await worker(harness, settings=settings)
    assert await ours.process(1) == [1]
    for position in held:
        answer = await ours.offer(position)
        assert answer.work is None
    return ours
