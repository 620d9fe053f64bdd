"""A slow worker, and one that is stopped past its lease: nothing is made up, nothing is twice."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headway.clock import CHANCE, CLOCK
from headway.order import Disposition, SequenceSettings
from headway.systems.uptime import metrics
from headway.systems.uptime.effects import Change, Effect
from headway.systems.uptime.metrics import Tally
from headway.systems.uptime.monitors import Detector, Subscription
from headway.systems.uptime.processor import ResultProcessor
from headway.systems.uptime.rollout import everybody
from headway.systems.uptime.sqlite_store import SqliteStore
from headway.testing.engines import redis_sequences
from tests.systems.uptime.sites import MINUTE, check

pytestmark = [pytest.mark.server("redis"), pytest.mark.timeout(60)]

# Waits of 0.6 s in all, and a lease of half a second.
QUICK = replace(SequenceSettings().scaled(1 / 300), lease=timedelta(seconds=0.5))


class SlowStore(SqliteStore):
    """Takes its time until it is told."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, synchronous="off")
        self.is_asked = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def apply(self, effects: Sequence[Effect]) -> Sequence[Change]:
        self.is_asked.set()
        await self.may_go_on.wait()
        return await super().apply(effects)


class StoppingStore(SqliteStore):
    """Stops its own process, before or after its first effect is written."""

    def __init__(self, path: Path, *, after: bool) -> None:
        super().__init__(path, synchronous="off")
        self._after = after
        self._was_stopped = False

    async def apply(self, effects: Sequence[Effect]) -> Sequence[Change]:
        if not self._after:
            self._stop()
        changes = await super().apply(effects)
        if self._after:
            self._stop()
        return changes

    def _stop(self) -> None:
        if not self._was_stopped:
            self._was_stopped = True
            os.kill(os.getpid(), signal.SIGSTOP)


def consumer(store: SqliteStore, url: str, counts: Tally) -> ResultProcessor:
    return ResultProcessor(
        store,
        redis_sequences(url, QUICK, prefix="uptime"),
        clock=CLOCK,
        chance=CHANCE,
        counts=counts,
        features=everybody(),
    )


async def prepared(store: SqliteStore) -> None:
    await store.prepare()
    subscription = Subscription("s1", interval_since_ms=MINUTE)
    await store.save([subscription], {"s1": Detector("d1", "acme")})


async def record_of(store: SqliteStore) -> list[tuple[int, bool]]:
    """Give the minutes as they were written, and whether a result was sent for them."""
    lines = await store.checks("s1")
    return [(line.scheduled_check_time_ms // MINUTE, bool(line.guid)) for line in lines]


@pytest.mark.parametrize("waits", [0.0, 1.5], ids=["at once", "longer than any wait"])
async def test_ten_results_behind_a_slow_one_trip_nothing_and_nothing_is_made_up_for_it(
    tmp_path: Path, redis_database: str, waits: float
) -> None:
    slow, quick, counts = SlowStore(tmp_path / "u.db"), SqliteStore(tmp_path / "u.db"), Tally()
    await prepared(quick)
    first = consumer(slow, redis_database, counts)
    second = consumer(quick, redis_database, counts)
    at_work = asyncio.create_task(first.handle_result(check(1)))
    await slow.is_asked.wait()
    fates = [await second.handle_result(check(minute)) for minute in range(2, 12)]
    assert set(fates) == {Disposition.HELD}
    looks = asyncio.create_task(second.backlog.run(timedelta(seconds=0.05)))
    await asyncio.sleep(waits)
    assert await record_of(quick) == []
    slow.may_go_on.set()
    assert await at_work is Disposition.APPLIED
    second.backlog.stop()
    await looks
    assert await record_of(quick) == [(minute, True) for minute in range(1, 12)]
    assert (await quick.totals()).applied == 11
    assert counts.get(metrics.ADDED) == counts.get(metrics.REMOVED) == 10
    assert counts.get(metrics.CIRCUIT_BREAKER) == counts.get(metrics.TIMEOUT) == 0
    await first.close()
    await second.close()


def stopped_at_work(path: Path, url: str, after: bool) -> None:  # noqa: FBT001 (of a process)
    """Live as a worker that is stopped while it is at minute 2."""

    async def work() -> None:
        worker = consumer(StoppingStore(path, after=after), url, Tally())
        await worker.handle_result(check(2))
        await worker.close()

    asyncio.run(work())


@pytest.mark.parametrize("after", [False, True], ids=["before it wrote", "after it wrote"])
async def test_a_worker_stopped_past_its_lease_and_continued_applies_nothing_twice(
    tmp_path: Path, redis_database: str, *, after: bool
) -> None:
    store, counts = SqliteStore(tmp_path / "u.db", synchronous="off"), Tally()
    await prepared(store)
    other = consumer(store, redis_database, counts)
    assert await other.handle_result(check(1)) is Disposition.APPLIED
    process = multiprocessing.get_context("spawn").Process(
        target=stopped_at_work, args=(tmp_path / "u.db", redis_database, after)
    )
    process.start()
    try:
        async with asyncio.timeout(40):
            while _state(process.pid) != "T":  # noqa: ASYNC110 (another process does it)
                await asyncio.sleep(0.02)
        assert await other.handle_result(check(3)) is not Disposition.LEFT
        await asyncio.sleep(QUICK.lease.total_seconds() * 1.2)
        # Its source gives the result to somebody else meanwhile.
        await other.handle_results([check(2), check(4)])
        await other.backlog.look_at_due()
        before = await record_of(store)
        assert before == [(minute, True) for minute in (1, 2, 3, 4)]
        os.kill(process.pid or 0, signal.SIGCONT)
        await asyncio.to_thread(process.join, 20)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
    assert await other.handle_result(check(5)) is Disposition.APPLIED
    assert await record_of(store) == [*before, (5, True)]
    assert (await store.totals()).applied == 5
    assert counts.get(metrics.TIMEOUT) == counts.get(metrics.CIRCUIT_BREAKER) == 0
    await other.close()


def _state(pid: int | None) -> str:
    """Give the letter by which the kernel says how a process is."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
