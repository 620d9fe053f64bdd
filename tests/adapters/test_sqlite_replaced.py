"""The file is removed, or another one is put in its place, while a worker runs."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway.adapters.sqlite.engine import SqliteEngine, sqlite_engine
from headway.adapters.sqlite.liveness import BEATS
from headway.adapters.system.chance import SystemChance
from headway.adapters.system.clock import SystemClock
from headway.core.errors import ConfigurationError
from headway.ports.bus import HandedBack
from headway.ports.commit import Outcome
from headway.testing.conformance.examples import (
    ORDERS,
    QUEUES,
    message,
    operations,
    publish,
    unit,
)
from tests.adapters.waiting import somebody_waits, until

CLOCK = SystemClock()
LOG = ("-wal", "-shm")
SECONDS = timedelta(seconds=20)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    engine = engine_on(tmp_path / "headway.db")
    await engine.bus.open(QUEUES)
    yield engine
    with suppress(ConfigurationError):
        await engine.bus.close()


def engine_on(path: Path) -> SqliteEngine:
    return sqlite_engine(path, CLOCK, SystemChance(), lease=timedelta(seconds=0.5))


async def replace(folder: Path, *suffixes: str) -> None:
    """Move the file away, with what lies beside it, and put another one in its place."""
    other = engine_on(folder / "new.db")
    await other.bus.open(QUEUES)
    await publish(other, "new")
    await other.bus.close()
    (folder / "old.db").hardlink_to(folder / "headway.db")
    for suffix in suffixes:
        (folder / f"headway.db{suffix}").rename(folder / f"old.db{suffix}")
    (folder / "new.db").replace(folder / "headway.db")


def names(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("select operation from headway_accepted")}


def beats(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        ((number,),) = connection.execute("select beat from headway_workers")
        return int(number)


async def test_a_worker_goes_on_with_the_file_that_is_there_now(
    tmp_path: Path, engine: SqliteEngine
) -> None:
    await publish(engine, "old")
    (old,) = await engine.bus.take([ORDERS.name], 1)
    assert (await engine.places.balance()).accepted == 1
    await replace(tmp_path, *LOG)
    (finish,) = await engine.finisher.finish([unit(old, CLOCK.now())])
    assert finish.outcome is Outcome.LOST
    assert (await engine.places.balance()).queues[1].ready == 1
    await publish(engine, "more")
    taken = await engine.bus.take([ORDERS.name], 10)
    assert operations(taken) == ["new", "more"]
    await until(lambda: beats(tmp_path / "headway.db") > 2 * BEATS)  # longer than its lease
    assert list(await engine.bus.settle([(each, HandedBack()) for each in taken])) == [True] * 2
    assert names(tmp_path / "headway.db") == {"new", "more"}
    assert names(tmp_path / "old.db") == {"old"}


async def test_who_waits_hears_what_is_in_the_file_that_is_there_now(
    tmp_path: Path, engine: SqliteEngine
) -> None:
    waiting = asyncio.create_task(engine.bus.take([ORDERS.name], 1, SECONDS))
    await somebody_waits(engine)
    await replace(tmp_path, *LOG)
    assert operations(await asyncio.wait_for(waiting, 5)) == ["new"]


async def test_in_an_empty_file_the_queues_are_declared_again(
    tmp_path: Path, engine: SqliteEngine
) -> None:
    for suffix in ("", *LOG):
        (tmp_path / f"headway.db{suffix}").rename(tmp_path / f"old.db{suffix}")
    (tmp_path / "headway.db").touch()
    assert list(await engine.bus.publish([message("first")])) == [1]
    assert operations(await engine.bus.take([ORDERS.name], 1)) == ["first"]
    assert (await engine.places.balance()).workers == 1


async def test_the_log_of_the_old_file_is_not_taken_for_changes_of_the_new_one(
    tmp_path: Path, engine: SqliteEngine
) -> None:
    await publish(engine, "old")
    await replace(tmp_path)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="log of the old one"):
            await publish(engine, "more")
        with pytest.raises(ConfigurationError, match="log of the old one"):
            await engine.places.balance()
    for suffix in LOG:
        (tmp_path / f"headway.db{suffix}").rename(tmp_path / f"old.db{suffix}")
    await publish(engine, "more")
    assert names(tmp_path / "headway.db") == {"new", "more"}
    assert names(tmp_path / "old.db") == {"old"}


USES: list[Callable[[SqliteEngine], Awaitable[Any]]] = [
    lambda engine: publish(engine, "more"),
    lambda engine: engine.places.balance(),
    lambda engine: engine.bus.take([ORDERS.name], 1, SECONDS),
    lambda engine: asyncio.to_thread(engine.bus.liveness.look),
]


@pytest.mark.parametrize("use", USES)
async def test_a_file_that_was_removed_is_missed_and_not_made_anew(
    tmp_path: Path, engine: SqliteEngine, use: Callable[[SqliteEngine], Awaitable[Any]]
) -> None:
    await publish(engine, "old")
    (old,) = await engine.bus.take([ORDERS.name], 1)
    path = tmp_path / "headway.db"
    path.rename(tmp_path / "aside.db")
    # The heartbeat misses it too, and does not make it anew either.
    await until(lambda: engine.bus.liveness._connection is None)
    for _ in range(3):
        with pytest.raises(ConfigurationError, match="was removed while it was in use") as caught:
            await use(engine)
        assert str(path) in str(caught.value)
        assert not path.exists()
    # It is brought back, and work goes on as if nothing had been.
    (tmp_path / "aside.db").rename(path)
    (finish,) = await engine.finisher.finish([unit(old, CLOCK.now())])
    assert finish.outcome is Outcome.COMMITTED
    assert engine.bus.liveness.look() == 0


async def test_who_waits_is_told_that_the_file_was_removed(
    tmp_path: Path, engine: SqliteEngine
) -> None:
    waiting = asyncio.create_task(engine.bus.take([ORDERS.name], 1, SECONDS))
    await somebody_waits(engine)
    (tmp_path / "headway.db").unlink()
    with pytest.raises(ConfigurationError, match="was removed"):
        await asyncio.wait_for(waiting, 5)


@pytest.mark.parametrize("name", ["a b.db", "100%.db", "who?.db", "#1.db", "käse ✓.db"])
async def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    engine = engine_on(tmp_path / name)
    await engine.bus.open(QUEUES)
    assert (tmp_path / name).exists()
    await engine.bus.close()
