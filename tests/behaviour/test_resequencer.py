"""The loop around sequences: apply, complete, go on; and what happens when one of them fails."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import ConfigurationError, Resequencer
from headway.errors import SequencesAwayError, is_unavailable
from headway.facts import (
    GapGivenUp,
    KeyCleared,
    ResultFailed,
    ResultHeld,
    ResultReleased,
    SequenceFact,
    SequencesAway,
    SequencesBack,
    StaleDropped,
    TurnLost,
)
from headway.order import BatchResequencer, Disposition, Result, SequenceSettings, Turn
from headway.runtime.sequence_applying import in_thread, one_by_one
from headway.runtime.sequence_watchers import SequenceWatchers
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


async def test_what_trips_the_breaker_is_held_first_and_applied_in_the_same_call(
    bench: Bench,
) -> None:
    worker = bench.worker()
    fates = [(await worker.offer(results(position)))[0] for position in range(2, 12)]
    assert fates == [Disposition.HELD] * 10
    assert bench.done == list(range(2, 12))


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


async def test_without_renewal_somebody_else_takes_over_and_the_late_one_is_refused(
    bench: Bench,
) -> None:
    go_on = asyncio.Event()

    async def stuck(work: Turn) -> None:
        await go_on.wait()
        await bench.apply(work)

    slow, other = bench.worker(stuck, renewing=False), bench.worker()
    offering = asyncio.create_task(slow.offer(results(1)))
    await asyncio.sleep(0)
    await other.offer(results(1))
    bench.clock.advance(LEASE)
    assert await other.look_at_due() == 1
    go_on.set()
    assert await offering == [Disposition.DUPLICATE]
    assert len(bench.told(TurnLost)) == 1


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


async def test_one_key_that_is_slow_keeps_back_no_other(bench: Bench) -> None:
    async def apply(work: Turn) -> None:
        if work.key == "slow":
            await bench.clock.wait(timedelta(seconds=5))
        await bench.apply(work)

    worker = bench.worker(apply)
    await worker.offer([*results(1, key="slow"), *results(1, 2, 3, key="fast")])
    assert [work.key for work in bench.works] == ["fast", "fast", "fast", "slow"]


async def test_a_worker_that_is_stopped_in_the_middle_leaves_its_work_to_others_at_once(
    bench: Bench,
) -> None:
    async def never(_work: Turn) -> None:
        await asyncio.Event().wait()

    stopped, other = bench.worker(never, renewing=False), bench.worker()
    offering = asyncio.create_task(stopped.offer(results(1)))
    await asyncio.sleep(0.01)
    offering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await offering
    await other.look_at_due()
    assert bench.done == [1]


class Cut(MemorySequences):
    """An engine that is away, or that loses its answers."""

    is_away = False
    loses = 0

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
        if self.is_away:
            asking.close()
            raise ConnectionRefusedError("nobody there")
        return await asking


async def test_a_lost_answer_is_asked_for_again_and_applied_once(bench: Bench) -> None:
    cut = Cut(bench.clock)
    cut.loses = 2
    assert await bench.worker(sequences=cut).offer(results(1)) == [Disposition.APPLIED]
    assert bench.done == [1]


async def test_without_another_way_the_source_is_told_to_keep_its_results(bench: Bench) -> None:
    cut = Cut(bench.clock)
    worker = bench.worker(sequences=cut, patience=timedelta(seconds=3))
    cut.is_away = True
    with pytest.raises(SequencesAwayError, match=r"away since .*ConnectionRefusedError"):
        await worker.offer(results(1))
    assert [fact.patience for fact in bench.told(SequencesAway)] == [timedelta(seconds=3)]
    looking = asyncio.create_task(worker.run())  # goes on, and finds it again
    await bench.clock.wait(timedelta(seconds=30))
    cut.is_away = False
    await bench.clock.wait(timedelta(seconds=3))
    assert len(bench.told(SequencesBack)) == 1
    assert await worker.offer(results(1)) == [Disposition.APPLIED]
    worker.stop()
    await looking


async def test_a_look_that_fails_does_not_end_the_looking(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    troubles = [KeyError("a store of somebody's own")]

    async def wanted(keys: Sequence[str]) -> Sequence[str]:
        if troubles:
            raise troubles.pop()
        return keys

    worker = bench.worker(wanted=wanted)
    await worker.offer(results(2))
    looking = asyncio.create_task(worker.run())
    await bench.clock.wait(timedelta(seconds=300))
    worker.stop()
    await looking
    assert bench.done == [2]
    assert "A look at what is due failed" in caplog.text


async def test_a_thread_that_cannot_be_stopped_keeps_its_position_to_its_end(bench: Bench) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(work: Turn) -> None:
        begun.set()
        go_on.wait(30)
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
    assert bench.done == [1]
    await other.look("k")  # what came next was given to others at once
    assert bench.done == [1, 2]


async def test_a_thread_that_fails_after_it_was_told_to_stop_is_tried_again(bench: Bench) -> None:
    go_on = threading.Event()

    def fail(work: Turn) -> None:
        go_on.wait(30)
        raise ValueError(work.position)

    failing = bench.worker(in_thread(fail), renewing=False)
    asyncio.get_running_loop().call_later(0.2, go_on.set)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(failing.offer(results(1)), 0.05)
    await bench.worker().look("k")
    assert bench.done == [1]


async def test_nobody_waits_for_an_engine_that_hangs_once_it_is_known(bench: Bench) -> None:
    sequences: Any = MemorySequences(bench.clock, shelf=bench.shelf)
    is_hung, ask, due = True, sequences.offer, sequences.due

    async def hang() -> None:
        while is_hung:
            await bench.clock.wait(timedelta(seconds=5))
            raise TimeoutError("no answer within 5 s")

    async def offer(offers: Any) -> Any:
        await hang()
        return await ask(offers)

    async def probe(limit: int) -> Any:
        await hang()
        return await due(limit)

    sequences.offer, sequences.due = offer, probe
    worker = bench.worker(sequences=sequences)
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
    is_hung = False
    await bench.clock.wait(timedelta(seconds=7))
    with suppress(SequencesAwayError):  # by the probe that was under way
        await worker.offer(results(1))
    await bench.clock.wait(timedelta(seconds=2))
    await worker.offer(results(1, 2))
    assert bench.done == [1, 2]
    assert len(bench.told(SequencesAway)) == len(bench.told(SequencesBack)) == 1
    await worker.close()


@pytest.mark.parametrize(
    ("error", "away"), [(ConnectionResetError(), True), (ValueError("wrong"), False)]
)
def test_only_what_speaks_of_the_connection_is_waited_for(error: Exception, *, away: bool) -> None:
    assert is_unavailable(error) is away


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"position": 1.0}, r"position of 'k': 1\.0 is not accepted: use a whole number \(int\)"),
        ({"position": "1"}, r"position of 'k': '1' is not accepted: use a whole number"),
        ({"position": True}, r"position of 'k': True is not accepted"),
        ({"position": -1}, r"position of 'k': -1 is not accepted: .* from 0 to"),
        ({"position": 2**52}, r"position of 'k': 4503599627370496 is not accepted"),
        ({"step": 1.0}, r"step of 'k': 1\.0 is not accepted"),
        ({"step": 0}, r"step of 'k': 0 is not accepted: .* from 1 to"),
        ({"begins": 1.0}, r"begins of 'k': 1\.0 is not accepted"),
        ({"begins": None}, r"begins of 'k': None is not accepted"),
        ({"applied": 0.0}, r"applied of 'k': 0\.0 is not accepted: .* or None"),
        ({"applied": 2**52}, r"applied of 'k': 4503599627370496 is not accepted"),
        ({"payload": "x"}, "a payload of type str of 'k' is not accepted: encode it to bytes"),
        ({"payload": {}}, "a payload of type dict of 'k' is not accepted"),
        ({"key": ""}, "key: '' is not accepted: use a text that is not empty"),
        ({"key": 7}, "key: 7 is not accepted"),
        ({"key": None}, "key: None is not accepted"),
    ],
)
async def test_what_no_engine_could_keep_is_refused_before_anything_is_done(
    wrong: dict[str, Any], said: str, tmp_path: Path
) -> None:
    seen: list[int] = []
    url = f"sqlite:///{tmp_path}/order.db?synchronous=off"
    async with Resequencer(lambda work: seen.append(work.position), url=url) as order:
        with pytest.raises(ValueError, match=said):
            await order.offer(**{"key": "k", "position": 2, "applied": 0, **wrong})
        assert await order.offer("k", 1, b"a", applied=0) is Disposition.APPLIED
    assert seen == [1]


async def test_nothing_is_offered_where_nobody_would_look_at_what_is_held(tmp_path: Path) -> None:
    order = Resequencer(lambda _work: None, url=f"sqlite:///{tmp_path}/order.db", name="jobs")
    said = "the resequencer 'jobs' is not running.*use it as `async with"
    with pytest.raises(ConfigurationError, match=said):
        await order.offer("k", 1)
    async with order:
        assert await order.offer("k", 1) is Disposition.APPLIED
    with pytest.raises(ConfigurationError, match=said):
        await order.offer_all([Result("k", 2)])


async def test_a_watcher_that_raises_disturbs_nobody(bench: Bench) -> None:
    class Broken:
        def tell(self, fact: SequenceFact) -> None:
            raise RuntimeError("no")

    watchers = SequenceWatchers(Broken(), bench)
    watchers.tell(ResultHeld("k", 1, 1))
    assert bench.told(ResultHeld)


async def test_the_public_one_works_on_a_file_with_a_plain_function(tmp_path: Path) -> None:
    seen: list[tuple[int, bytes]] = []
    loop, all_seen = asyncio.get_running_loop(), asyncio.Event()

    def apply(work: Turn) -> None:
        seen.append((work.position, work.payload))
        if work.position == 6:
            loop.call_soon_threadsafe(all_seen.set)

    url = f"sqlite:///{tmp_path}/order.db?synchronous=off"
    settings = SequenceSettings().scaled(0.001)
    async with Resequencer(
        apply, url=url, settings=settings, look_every=timedelta(milliseconds=20)
    ) as order:
        assert await order.offer("k", 1, b"a") is Disposition.APPLIED
        assert await order.offer("k", 3, b"c") is Disposition.HELD
        assert await order.offer("k", 2, b"b") is Disposition.APPLIED
        assert seen == [(1, b"a"), (2, b"b"), (3, b"c")]
        assert await order.offer_all([Result("k", 6), Result("k", 5)]) == [Disposition.HELD] * 2
        async with asyncio.timeout(30):
            await all_seen.wait()  # the gap of 4 is given up after 180 ms
        assert await order.offer("k", 5) is Disposition.DUPLICATE
    assert [position for position, _ in seen] == [1, 2, 3, 5, 6]


class Tasks:
    """A scheduler whose tasks a test runs when their time has come."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._times: list[datetime] = []

    async def schedule(self, key: str, delay: timedelta) -> None:
        assert key == "k"
        self._times.append(self._clock.now() + delay)

    def wait_for_next(self) -> None:
        first = min(self._times)
        self._times.remove(first)
        self._clock.advance(first - self._clock.now())


async def test_a_source_that_is_always_a_little_ahead_costs_no_minute(bench: Bench) -> None:
    """Under traffic there is always something that was read and not committed yet."""
    tasks, began = Tasks(bench.clock), bench.clock.now()

    def progress() -> Any:
        return bench.clock.now() - timedelta(seconds=2)

    ours = bench.worker(scheduler=tasks, progress=progress)
    await ours.offer(results(1, 3))
    await ours.scheduled()
    while not bench.told(GapGivenUp):
        tasks.wait_for_next()
        await ours.look("k", in_time=True)
    assert bench.clock.now() - began == timedelta(seconds=182.5)
    assert bench.done == [1, 3]


async def test_what_a_takeover_drops_is_told_once(bench: Bench) -> None:
    ours = bench.worker()
    await ours.offer(results(1, 4, 5))
    await ours.offer([Result("k", 7, b"7", applied=6)])
    assert bench.told(StaleDropped) == [StaleDropped("k", 2)]
    assert len(bench.told(KeyCleared)) == 1
    assert len(bench.told(ResultHeld)) == 2
    assert bench.told(ResultReleased) == []


async def test_what_was_dropped_under_its_worker_is_not_told_as_released_too(
    bench: Bench,
) -> None:
    theirs = bench.worker()

    async def apply(work: Turn) -> None:
        if work.position == 3:  # somebody else's store says that it is applied
            await theirs.offer([Result("k", 4, b"4", applied=3)])
        await bench.apply(work)

    ours = bench.worker(apply)
    await ours.offer(results(1, 3))
    await ours.offer(results(2))
    assert bench.done == [1, 2, 3, 4]
    assert bench.told(StaleDropped) == [StaleDropped("k", 1)]
    assert [fact.position for fact in bench.told(ResultReleased)] == [4]
    assert len(bench.told(ResultHeld)) == 2


async def test_a_gap_whose_worker_died_is_taken_back_when_its_result_comes(bench: Bench) -> None:
    applied = asyncio.Event()

    async def die(work: Turn) -> None:
        await bench.apply(work)
        if work.gap is not None:
            applied.set()
            await asyncio.Event().wait()  # for ever, and without a word

    dead, ours = bench.worker(die, renewing=False), bench.worker()
    await dead.offer(results(1, 3))
    bench.clock.advance(timedelta(seconds=180))
    dying = asyncio.create_task(dead.look("k"))
    await applied.wait()
    bench.clock.advance(LEASE)
    await ours.offer(results(2))
    seen = [(work.position, work.gap is not None, work.late) for work in bench.works]
    assert seen == [(1, False, False), (3, True, False), (3, True, False), (2, False, True)]
    dying.cancel()
    with suppress(asyncio.CancelledError):
        await dying
