"""The engine of sequences is away: results wait, then go on without their order, and all is put
right afterwards."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from headway.order import Disposition, SequenceSettings
from headway.systems.uptime import metrics
from headway.systems.uptime.metrics import Tally
from headway.systems.uptime.opening import open_processor
from headway.systems.uptime.rollout import Features
from headway.systems.uptime.settings import UptimeSettings
from headway.testing.engines import redis_sequences
from headway.testing.servers import Redis
from tests.systems.uptime.sites import FOUR, Site, check, send


class Wire:
    """Sequences behind a wire that can be cut."""

    def __init__(self, sequences: Any) -> None:
        self._sequences = sequences
        self.settings: SequenceSettings = sequences.settings
        self.is_cut = False
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._sequences, name)

        async def ask(*given: Any) -> Any:
            self.asked += 1
            if self.is_cut:
                raise ConnectionRefusedError("nobody listens")
            return await method(*given)

        return ask


async def test_results_wait_ten_seconds_for_the_engine_and_lose_nothing(memory: Site) -> None:
    wire: Any = Wire(memory.sequences())
    consumer = memory.consumer(sequences=wire)
    wire.is_cut = True

    async def mend() -> None:
        await memory.clock.wait(timedelta(seconds=8))
        wire.is_cut = False

    mending = asyncio.create_task(mend())
    assert await send(consumer, FOUR) == [Disposition.APPLIED]
    await mending
    assert memory.counted(metrics.PASSED) == 0


async def test_after_ten_seconds_they_go_on_with_backfill_and_are_counted(memory: Site) -> None:
    wire: Any = Wire(memory.sequences())
    consumer = memory.consumer(sequences=wire)
    await send(consumer, FOUR)
    wire.is_cut = True
    began = memory.clock.now()
    assert await send(consumer, FOUR + 2) == [Disposition.PASSED]
    waited = memory.clock.now() - began
    assert timedelta(seconds=10) <= waited < timedelta(seconds=12)
    assert await memory.missed() == [FOUR + 1]
    assert memory.counted(metrics.PASSED) == 1
    # From now on nobody waits, and the engine is not asked for every result.
    asked = wire.asked
    assert await send(consumer, FOUR + 3) == [Disposition.PASSED]
    assert wire.asked <= asked + 1
    assert memory.clock.now() - began - waited < timedelta(seconds=1)


async def test_the_late_result_takes_the_miss_back_once_the_engine_is_there(memory: Site) -> None:
    wire: Any = Wire(memory.sequences())
    consumer = memory.consumer(sequences=wire)
    await send(consumer, FOUR)
    wire.is_cut = True
    await send(consumer, FOUR + 2)
    wire.is_cut = False
    memory.clock.advance(timedelta(seconds=5))
    assert await send(consumer, FOUR + 1) == [Disposition.APPLIED]
    assert await memory.missed() == []
    assert await send(consumer, FOUR + 3) == [Disposition.APPLIED]  # the marker has jumped forward


async def test_what_was_held_all_the_time_is_not_dropped_with_its_miss(memory: Site) -> None:
    wire: Any = Wire(memory.sequences())
    consumer = memory.consumer(sequences=wire)
    await send(consumer, FOUR, FOUR + 2)  # held
    wire.is_cut = True
    await send(consumer, FOUR + 3)
    assert await memory.missed() == [FOUR + 1, FOUR + 2]
    wire.is_cut = False
    memory.clock.advance(timedelta(seconds=5))
    assert await send(consumer, FOUR + 4) == [Disposition.APPLIED]
    assert await memory.missed() == [FOUR + 1]
    assert await memory.applied() == [FOUR, FOUR + 3, FOUR + 2, FOUR + 4]
    assert memory.counted(metrics.RETRACTED) == 1
    # Nothing is held any more, so the counters must not say otherwise.
    assert memory.counted(metrics.ADDED) == memory.counted(metrics.REMOVED) == 1
    assert memory.counted(metrics.CLEARED) == 1


async def test_a_result_applied_just_before_the_engine_went_away_counts_as_applied(
    memory: Site,
) -> None:
    wire: Any = Wire(memory.sequences())
    consumer = memory.consumer(sequences=wire)
    complete = wire._sequences.complete

    async def cut(done: Any) -> Any:
        wire.is_cut = True
        raise ConnectionResetError("gone")

    wire._sequences.complete = cut
    assert await send(consumer, FOUR) == [Disposition.APPLIED]
    wire._sequences.complete, wire.is_cut = complete, False
    memory.clock.advance(timedelta(seconds=31))  # the lease of what was never completed is over
    assert await send(consumer, FOUR + 1) == [Disposition.APPLIED]
    assert await memory.applied() == [FOUR, FOUR + 1]


@pytest.mark.server("redis")
async def test_redis_is_killed_and_comes_back(tmp_path: Path) -> None:
    with Redis() as server:
        url = server.create_database()
        settings = UptimeSettings(
            store=f"sqlite:///{tmp_path}/uptime.db?synchronous=off",
            sequences=url,
            percentage=100,
            patience=timedelta(seconds=0.3),
        )
        site = Site("sqlite", tmp_path)
        await site.open()
        counts = Tally()
        consumer = await open_processor(settings, counts)
        assert await send(consumer, FOUR, FOUR + 2) == [Disposition.APPLIED, Disposition.HELD]
        server.kill()
        assert await send(consumer, FOUR + 3) == [Disposition.PASSED]
        server.start()
        desk = redis_sequences(url, prefix="uptime")
        assert [each.position // 60_000 for each in await desk.held("s1", 10)] == [FOUR + 2]
        await desk.close()
        await asyncio.sleep(1.1)  # the engine is asked again once in a second
        fates = await send(consumer, FOUR + 1, FOUR + 4)
        assert fates == [Disposition.APPLIED, Disposition.APPLIED]
        assert await site.missed() == []
        assert sorted(await site.applied()) == [*range(FOUR, FOUR + 5)]
        assert counts.get(metrics.PASSED) == 1
        assert counts.get(metrics.ADDED) == counts.get(metrics.REMOVED) == 1
        await consumer.close()
        await site.close()


@pytest.mark.server("redis")
@pytest.mark.parametrize("setting", ["maxmemory", "min-replicas-to-write"])
async def test_a_redis_that_answers_and_refuses_is_away_too(tmp_path: Path, setting: str) -> None:
    with Redis() as server:
        url = server.create_database()
        settings = UptimeSettings(
            store=f"sqlite:///{tmp_path}/uptime.db?synchronous=off",
            sequences=url,
            percentage=100,
            patience=timedelta(seconds=0.3),
        )
        site = Site("sqlite", tmp_path)
        await site.open()
        consumer = await open_processor(settings, Tally())
        assert await send(consumer, FOUR, FOUR + 2) == [Disposition.APPLIED, Disposition.HELD]
        async with Client.from_url(url) as operator:
            await operator.config_set(setting, 1)
            assert await send(consumer, FOUR + 3) == [Disposition.PASSED]
            await operator.config_set(setting, 0)
        await asyncio.sleep(1.1)  # the engine is asked again once in a second
        assert await send(consumer, FOUR + 1, FOUR + 4) == [
            Disposition.APPLIED,
            Disposition.APPLIED,
        ]
        assert await site.missed() == []
        await consumer.close()
        await site.close()


@pytest.mark.server("redis")
async def test_a_redis_that_hangs_is_waited_for_no_longer_than_one_that_is_away(
    tmp_path: Path,
) -> None:
    with Redis() as server:
        settings = UptimeSettings(
            store=f"sqlite:///{tmp_path}/uptime.db?synchronous=off",
            sequences=f"{server.create_database()}?socket_timeout=1",
            percentage=100,
            patience=timedelta(seconds=1),
        )
        site = Site("sqlite", tmp_path)
        await site.open()
        consumer = await open_processor(settings, Tally())
        assert await send(consumer, FOUR) == [Disposition.APPLIED]
        (pid,) = server.pids()
        os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(4):
                assert await send(consumer, FOUR + 1) == [Disposition.PASSED]
            async with asyncio.timeout(4):  # a hundred of them, which would take as many seconds
                fates = [await send(consumer, FOUR + 2 + number) for number in range(100)]
                assert fates == [[Disposition.PASSED]] * 100
        finally:
            os.kill(pid, signal.SIGCONT)
        await consumer.close()
        await site.close()


async def test_without_the_feature_the_engine_is_not_even_asked(memory: Site) -> None:
    wire: Any = Wire(memory.sequences())
    wire.is_cut = True
    consumer = memory.consumer(sequences=wire, features=Features())
    assert await consumer.handle_result(check(FOUR)) is Disposition.APPLIED
    assert wire.asked == 0


async def test_a_worker_without_the_feature_costs_nothing_that_another_holds(site: Site) -> None:
    ordered, plain = site.consumer(), site.consumer(features=Features())
    assert await send(ordered, FOUR, FOUR + 2) == [Disposition.APPLIED, Disposition.HELD]
    assert await send(plain, FOUR + 3) == [Disposition.APPLIED]
    assert await site.missed() == [FOUR + 1, FOUR + 2]
    assert await send(ordered, FOUR + 4) == [Disposition.APPLIED]
    assert await site.missed() == [FOUR + 1]
    assert await site.applied() == [FOUR, FOUR + 3, FOUR + 2, FOUR + 4]


async def test_who_goes_on_while_it_is_put_right_has_it_put_right_again(memory: Site) -> None:
    wire: Any = Wire(memory.sequences())
    ordered, plain = memory.consumer(sequences=wire), memory.consumer(features=Features())
    await send(ordered, FOUR, FOUR + 2, FOUR + 5)
    await send(plain, FOUR + 3)
    held = wire._sequences.held

    async def held_while_another_goes_on(key: str, limit: int) -> Any:
        wire._sequences.held = held
        await send(plain, FOUR + 6)
        return await held(key, limit)

    wire._sequences.held = held_while_another_goes_on
    await send(ordered, FOUR + 7)
    await send(ordered, FOUR + 8)
    assert await memory.missed() == [FOUR + 1, FOUR + 4]
    applied = [FOUR, FOUR + 2, FOUR + 3, *range(FOUR + 5, FOUR + 9)]
    assert sorted(await memory.applied()) == applied


_HANGING_BROKER = """
import asyncio, time
from datetime import timedelta
from headway.systems.uptime.celery_scheduler import CeleryScheduler
from headway.adapters.system.clock import SystemClock

class Task:  # as Celery's, on a broker that took the connection and then stopped
    def apply_async(self, *args, **options):
        time.sleep(600)

async def main():
    try:
        await CeleryScheduler(Task(), SystemClock()).schedule("s1", timedelta(seconds=10))
    except TimeoutError as error:
        print(error, flush=True)

asyncio.run(main())
"""


def test_a_celery_broker_that_hangs_keeps_no_process_from_its_end() -> None:
    """A real wait: the scheduler waits 3 s for the broker, and the process must wait no longer."""
    done = subprocess.run(
        [sys.executable, "-c", _HANGING_BROKER],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == "the broker of Celery gave no answer within 3 s\n", done.stderr
