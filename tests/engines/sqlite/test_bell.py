"""Who waits hears of what others stored, soon, and nobody asks while nobody waits."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from pathlib import Path

import pytest

from headway.adapters.sqlite.bell import Bell
from headway.adapters.sqlite.connection import Location
from headway.clock import SystemChance, SystemClock
from headway.testing.conformance.examples import ORDERS, QUEUES, publish
from headway.testing.engines import SqliteEngine, sqlite_engine
from headway.testing.ports import Done
from tests.engines.waiting import somebody_waits, until

LONG = timedelta(seconds=20)


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[tuple[SqliteEngine, SqliteEngine]]:
    path = tmp_path / "headway.db"
    both = tuple(sqlite_engine(path, SystemClock(), SystemChance()) for _ in range(2))
    for engine in both:
        await engine.bus.open(QUEUES)
    yield both[0], both[1]
    for engine in both:
        await engine.bus.close()


async def test_what_another_engine_publishes_wakes_who_waits_within_a_tenth_of_a_second(
    engines: tuple[SqliteEngine, SqliteEngine],
) -> None:
    publisher, taker = engines
    late = []
    for number in range(9):
        waiting = asyncio.create_task(taker.bus.take([ORDERS.name], 1, LONG))
        await somebody_waits(taker)
        await publish(publisher, f"event {number}")
        published = time.monotonic()
        (taken,) = await waiting
        late.append(time.monotonic() - published)
        await taker.bus.settle([(taken, Done())])
    # The middle one: a single one says more about what else this machine has to do.
    assert statistics.median(late) < 0.1, late


async def test_nobody_asks_while_nobody_waits(tmp_path: Path) -> None:
    bell = Bell(Location(path=tmp_path / "headway.db"), SystemClock())
    assert await bell.heard(bell.rings, LONG)  # a file that it sees for the first time
    sleepers: Collection[object] = bell._wanted._waiters  # type: ignore[attr-defined]
    await until(lambda: bool(sleepers))  # it waits to be wanted, for however long
    bell.close()


async def test_a_bell_that_was_closed_lets_nobody_wait(tmp_path: Path) -> None:
    bell = Bell(Location(path=tmp_path / "headway.db"), SystemClock())
    rings = bell.rings
    bell.close()
    assert await bell.heard(rings, LONG)
