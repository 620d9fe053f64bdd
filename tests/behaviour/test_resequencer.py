"""The loop around sequences: apply, complete, go on; and what happens when one of them fails."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import ConfigurationError, Resequencer
from headway.errors import SequencesAwayError
from headway.facts import (
    GapGivenUp,
    ResultFailed,
    ResultHeld,
    ResultReleased,
    SequenceFact,
    SequencesAway,
    SequencesBack,
    TurnLost,
)
from headway.order import BatchResequencer, Disposition, Result, SequenceSettings, Turn
from headway.runtime.sequence_applying import in_thread, one_by_one
from headway.testing.chance import Seeded
from headway.testing.clock import VirtualClock
from headway.testing.engines import MemorySequences, MemoryShelf

LEASE = SequenceSettings().lease


class Bench:
    """Workers on one shelf, and what they did."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.shelf = MemoryShelf()
        self.done: list[int] = []
        self.works: list[Turn] = []
        self.facts: list[SequenceFact] = []
        self._chance = Seeded(7)

    def tell(self, fact: SequenceFact) -> None:
        self.facts.append(fact)

    def told(self, kind: type) -> list[Any]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    async def apply(self, work: Turn) -> None:
        self.works.append(work)
        self.done.append(work.position)

    def worker(
        self, apply: Callable[[Turn], Awaitable[None]] | None = None, **given: Any
    ) -> BatchResequencer:
        sequences = given.pop("sequences", None) or MemorySequences(self.clock, shelf=self.shelf)
        return BatchResequencer(
            sequences,
            one_by_one(apply or self.apply),
            clock=self.clock,
            chance=self._chance,
            watchers=[self],
            **{"together": False, **given},
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def results(*positions: int, key: str = "k") -> list[Result]:
    return [Result(key, position, b"%d" % position, applied=0) for position in positions]


async def test_any_order_is_applied_in_order(bench: Bench) -> None:
    worker = bench.worker()
    fates = [(await worker.offer(results(position)))[0] for position in (3, 1, 4, 2, 2)]
    assert fates == [
        Disposition.HELD,
        Disposition.APPLIED,
        Disposition.HELD,
        Disposition.APPLIED,
        Disposition.DUPLICATE,
    ]
    assert bench.done == [1, 2, 3, 4]
    assert [work.payload for work in bench.works] == [b"1", b"2", b"3", b"4"]
    assert len(bench.told(ResultHeld)) == len(bench.told(ResultReleased)) == 2


async def test_a_batch_that_has_all_of_a_key_holds_nothing(bench: Bench) -> None:
    worker = bench.worker(together=True)
    fates = await worker.offer([*results(3, 1, 4, 2, 2), *results(2, 4, 3, key="late")])
    applied, held = Disposition.APPLIED, Disposition.HELD
    assert fates == [applied] * 4 + [Disposition.DUPLICATE] + [held] * 3
    assert bench.done == [1, 2, 3, 4]
    assert {fact.key for fact in bench.told(ResultHeld)} == {"late"}


async def test_slow_work_keeps_its_lease(bench: Bench) -> None:
    async def slowly(work: Turn) -> None:
        await bench.clock.wait(LEASE * 4)
        await bench.apply(work)

    slow, other = bench.worker(slowly), bench.worker()
    offering = asyncio.create_task(slow.offer(results(1)))
    await asyncio.sleep(0)
    looking = asyncio.create_task(other.run(timedelta(seconds=1)))
    assert (await other.offer(results(1, 2))) == [Disposition.HELD, Disposition.HELD]
    assert await offering == [Disposition.APPLIED]
    other.stop()
    await looking
    assert bench.done == [1, 2]
    assert bench.told(TurnLost) == []


async def test_what_raises_is_given_back_and_tried_again_while_the_rest_waits(
    bench: Bench,
) -> None:
    failures = [ValueError("not today"), ValueError("nor now")]

    async def sometimes(work: Turn) -> None:
        if (work.key, work.position) == ("k", 1) and failures:
            raise failures.pop(0)
        await bench.apply(work)

    worker = bench.worker(sometimes)
    assert await worker.offer(results(1, 2)) == [Disposition.HELD, Disposition.HELD]
    assert await worker.offer(results(1, key="other")) == [Disposition.APPLIED]
    bench.clock.advance(timedelta(seconds=10))
    await worker.look_at_due()
    bench.clock.advance(timedelta(seconds=20))
    await worker.look_at_due()
    assert [work.position for work in bench.works if work.key == "k"] == [1, 2]
    assert [(each.attempt, each.wait) for each in bench.told(ResultFailed)] == [
        (1, timedelta(seconds=10)),
        (2, timedelta(seconds=20)),
    ]
    # What was given back is held: what is added is removed again.
    assert len(bench.told(ResultHeld)) == len(bench.told(ResultReleased)) == 2


# Engines that are unavailable


class Cut(MemorySequences):
    """An engine that is unavailable at once or after 5 s, or that loses its answers."""

    is_away = is_hung = False
    loses = 0

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.clock, shelf=bench.shelf)
        self._waits = bench.clock

    async def offer(self, offers: Any) -> Any:
        answers = await self._ask(super().offer(offers))
        if self.loses:
            self.loses -= 1
            raise TimeoutError("the answer is lost")
        return answers

    async def complete(self, done: Any) -> Any:
        return await self._ask(super().complete(done))

    async def due(self, limit: int) -> Any:
        return await self._ask(super().due(limit))

    async def _ask(self, asking: Any) -> Any:
        if self.is_away or self.is_hung:
            asking.close()
            if self.is_hung:
                await self._waits.wait(timedelta(seconds=5))
            raise ConnectionRefusedError("no answer")
        return await asking


async def test_a_lost_answer_is_asked_for_again_and_applied_once(bench: Bench) -> None:
    cut = Cut(bench)
    cut.loses = 2
    assert await bench.worker(sequences=cut).offer(results(1)) == [Disposition.APPLIED]
    assert bench.done == [1]


async def test_an_error_that_is_none_of_the_connection_is_not_waited_for(bench: Bench) -> None:
    class Wrong(Cut):
        async def offer(self, offers: Any) -> Any:
            raise ValueError("wrong")

    began = bench.clock.now()
    with pytest.raises(ValueError, match="wrong"):
        await bench.worker(sequences=Wrong(bench)).offer(results(1))
    assert (bench.clock.now(), bench.told(SequencesAway)) == (began, [])


async def test_an_engine_that_hangs_is_waited_for_once(bench: Bench) -> None:
    cut = Cut(bench)
    cut.is_hung = True
    worker = bench.worker(sequences=cut)
    began = bench.clock.now()
    with pytest.raises(SequencesAwayError):
        await worker.offer(results(1))
    assert timedelta(seconds=10) <= bench.clock.now() - began < timedelta(seconds=11)
    for _ in range(20):
        bench.clock.advance(timedelta(seconds=1.5))
        began = bench.clock.now()
        with pytest.raises(SequencesAwayError):
            await worker.offer(results(1))
        assert bench.clock.now() - began < timedelta(seconds=0.2)
    cut.is_hung = False
    await bench.clock.wait(timedelta(seconds=7))
    with suppress(SequencesAwayError):  # by the probe that was under way
        await worker.offer(results(1))
    await bench.clock.wait(timedelta(seconds=2))
    await worker.offer(results(1, 2))
    assert bench.done == [1, 2]
    assert len(bench.told(SequencesAway)) == len(bench.told(SequencesBack)) == 1
    await worker.close()


# When keys are checked


async def test_a_source_that_is_always_a_little_ahead_costs_no_minute(bench: Bench) -> None:
    """Under traffic there is always something that was read and not committed yet."""
    times, began = list[datetime](), bench.clock.now()

    class Tasks:
        async def schedule(self, key: str, delay: timedelta) -> None:
            times.append(bench.clock.now() + delay)

    def progress() -> datetime:
        return bench.clock.now() - timedelta(seconds=2)

    ours = bench.worker(scheduler=Tasks(), progress=progress)
    await ours.offer(results(1, 3))
    await ours.scheduled()
    while not bench.told(GapGivenUp):
        times.sort()
        bench.clock.advance(times.pop(0) - bench.clock.now())
        await ours.look("k", in_time=True)
    assert bench.clock.now() - began == timedelta(seconds=182.5)
    assert bench.done == [1, 3]


# Threads cannot be stopped


@pytest.mark.parametrize("fails", [False, True])
async def test_a_thread_keeps_its_position_to_its_end(bench: Bench, *, fails: bool) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(work: Turn) -> None:
        begun.set()
        go_on.wait(30)
        if fails:
            raise ValueError(work.position)
        bench.done.append(work.position)

    slow, other = bench.worker(in_thread(slowly), renewing=False), bench.worker()
    offering = asyncio.create_task(slow.offer(results(1)))
    await asyncio.to_thread(begun.wait, 30)
    for _ in range(2):
        offering.cancel()
        assert set(await other.offer(results(1, 2))) == {Disposition.HELD}
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await offering
    assert bench.done == ([] if fails else [1])
    await other.look("k")  # what is left was given to others at once
    assert bench.done == [1, 2]


# The public one, on a file


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/order.db?synchronous=off"


async def test_the_public_one_works_on_a_file_with_a_plain_function(url: str) -> None:
    seen: list[tuple[int, bytes]] = []
    loop, all_seen = asyncio.get_running_loop(), asyncio.Event()

    class Broken:
        def tell(self, fact: SequenceFact) -> None:
            raise RuntimeError("no")

    def apply(work: Turn) -> None:
        seen.append((work.position, work.payload))
        if work.position == 6:
            loop.call_soon_threadsafe(all_seen.set)

    settings, often = SequenceSettings().scaled(0.001), timedelta(milliseconds=20)
    order = Resequencer(apply, url=url, settings=settings, look_every=often, watcher=Broken())
    with pytest.raises(ConfigurationError, match="async with"):
        await order.offer("k", 1)
    async with order:
        assert await order.offer("k", 1, b"a") is Disposition.APPLIED
        assert await order.offer("k", 3, b"c") is Disposition.HELD
        assert await order.offer("k", 2, b"b") is Disposition.APPLIED
        assert seen == [(1, b"a"), (2, b"b"), (3, b"c")]
        assert await order.offer_all([Result("k", 6), Result("k", 5)]) == [Disposition.HELD] * 2
        async with asyncio.timeout(30):
            await all_seen.wait()  # the gap of 4 is given up after 180 ms
        assert await order.offer("k", 5) is Disposition.DUPLICATE
    assert [position for position, _ in seen] == [1, 2, 3, 5, 6]
    with pytest.raises(ConfigurationError, match="async with"):
        await order.offer_all([Result("k", 7)])


WRONG: dict[str, list[Any]] = {
    "position": [1.0, "1", True, -1, 2**52],
    "step": [1.0, 0],
    "begins": [1.0, None],
    "applied": [0.0, 2**52],
    "payload": ["x", {}],
    "key": ["", 7, None],
}


async def test_what_no_engine_could_keep_is_refused_before_anything_is_done(url: str) -> None:
    seen: list[int] = []
    async with Resequencer(lambda work: seen.append(work.position), url=url) as order:
        for field, values in WRONG.items():
            for value in values:
                wrong: Any = {"key": "k", "position": 2, "applied": 0, field: value}
                with pytest.raises(ValueError, match=field):
                    await order.offer(**wrong)
        assert await order.offer("k", 1, b"a", applied=0) is Disposition.APPLIED
    assert seen == [1]


def test_a_program_without_an_event_loop_uses_it_from_any_thread(tmp_path: Path) -> None:
    seen: list[int] = []
    url = f"sqlite:///{tmp_path}/order.db"
    with Resequencer(lambda turn: seen.append(turn.position), url=url) as order:
        assert order.offer("k", 1) is Disposition.APPLIED
        with ThreadPoolExecutor(4) as threads:
            fates = list(threads.map(lambda at: order.offer("k", at), (4, 3, 2)))
        assert (seen, fates.count(Disposition.HELD)) == ([1, 2, 3, 4], len(fates) - 1)
        assert order.offer_all([Result("k", 5), Result("k", 2)]) == [
            Disposition.APPLIED,
            Disposition.DUPLICATE,
        ]
        assert order.look("k") is None
    with pytest.raises(ConfigurationError):
        asyncio.run(Resequencer(lambda _: None, url=url).offer("k", 6))
    assert not [each for each in threading.enumerate() if each.name == "headway-order"]
