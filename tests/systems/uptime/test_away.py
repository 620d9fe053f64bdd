"""The engine of sequences is away: results wait, then go on without their order, and all is put
right afterwards."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from headway.order import Disposition, SequenceSettings
from headway.systems.uptime import metrics
from headway.systems.uptime.metrics import Tally
from headway.systems.uptime.opening import open_processor
from headway.systems.uptime.processor import ResultProcessor
from headway.systems.uptime.rollout import Features
from headway.systems.uptime.settings import UptimeSettings
from headway.testing.servers import Redis
from tests.systems.uptime.sites import FOUR, Site, send


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
                raise ConnectionRefusedError("no server listens")
            return await method(*given)

        return ask


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
    # From now on no result waits, and the engine is not asked for every result.
    asked = wire.asked
    assert await send(consumer, FOUR + 3) == [Disposition.PASSED]
    assert wire.asked <= asked + 1
    assert memory.clock.now() - began - waited < timedelta(seconds=1)


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


@dataclass
class Real:
    """A consumer on a Redis of its own, and the records behind it."""

    server: Redis
    site: Site
    consumer: ResultProcessor


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Real]:
    with Redis() as server:
        settings = UptimeSettings(
            store=f"sqlite:///{tmp_path}/uptime.db?synchronous=off",
            sequences=f"{server.create_database()}?socket_timeout=1",
            percentage=100,
            patience=timedelta(seconds=0.3),
        )
        site = Site("sqlite", tmp_path)
        await site.open()
        consumer = await open_processor(settings, Tally())
        yield Real(server, site, consumer)
        await consumer.close()
        await site.close()


@pytest.mark.server("redis")
@pytest.mark.parametrize("setting", ["maxmemory", "min-replicas-to-write"])
async def test_a_redis_that_answers_and_refuses_is_away_too(real: Real, setting: str) -> None:
    sent = await send(real.consumer, FOUR, FOUR + 2)
    assert sent == [Disposition.APPLIED, Disposition.HELD]
    async with Client.from_url(real.server.create_database()) as operator:
        await operator.config_set(setting, 1)
        assert await send(real.consumer, FOUR + 3) == [Disposition.PASSED]
        await operator.config_set(setting, 0)
    await asyncio.sleep(1.1)  # the engine is asked again once in a second
    assert await send(real.consumer, FOUR + 1, FOUR + 4) == [Disposition.APPLIED] * 2
    assert await real.site.missed() == []


@pytest.mark.server("redis")
async def test_a_redis_that_hangs_is_waited_for_no_longer_than_one_that_is_away(
    real: Real,
) -> None:
    assert await send(real.consumer, FOUR) == [Disposition.APPLIED]
    (pid,) = real.server.pids()
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(6):  # a hundred of them, which would take as many seconds
            minutes = range(FOUR + 1, FOUR + 101)
            assert await send(real.consumer, *minutes) == [Disposition.PASSED] * 100
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_worker_without_the_feature_costs_nothing_that_another_holds(site: Site) -> None:
    ordered, plain = site.consumer(), site.consumer(features=Features())
    assert await send(ordered, FOUR, FOUR + 2) == [Disposition.APPLIED, Disposition.HELD]
    assert await send(plain, FOUR + 3) == [Disposition.APPLIED]
    assert await site.missed() == [FOUR + 1, FOUR + 2]
    assert await send(ordered, FOUR + 4) == [Disposition.APPLIED]
    assert await site.missed() == [FOUR + 1]
    assert await site.applied() == [FOUR, FOUR + 3, FOUR + 2, FOUR + 4]
