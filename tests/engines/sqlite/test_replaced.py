"""The file is removed, or another one is put in its place, while a worker runs."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import ConfigurationError
from headway.clock import SystemChance, SystemClock
from headway.errors import StorageLostError
from headway.testing.conformance.examples import (
    ORDERS,
    QUEUES,
    operations,
    publish,
    unit,
)
from headway.testing.engines import SqliteEngine, sqlite_engine

CLOCK = SystemClock()
LOG = ("-wal", "-shm")
SECONDS = timedelta(seconds=20)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[SqliteEngine]:
    engine = engine_on(tmp_path / "headway.db")
    await engine.bus.open(QUEUES)
    yield engine
    await closed(engine)


async def closed(engine: SqliteEngine) -> None:
    with suppress(StorageLostError):
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


Use = Callable[[SqliteEngine], Awaitable[Any]]
USES: list[Use] = [
    lambda engine: publish(engine, "more"),
    lambda engine: engine.places.balance(),
    lambda engine: engine.bus.take([ORDERS.name], 1, SECONDS),
    lambda engine: asyncio.to_thread(engine.bus.liveness.look),
]


@pytest.mark.parametrize("use", USES)
async def test_a_process_works_neither_on_the_old_file_nor_on_the_new_one(
    tmp_path: Path, engine: SqliteEngine, use: Use
) -> None:
    await publish(engine, "old")
    (old,) = await engine.bus.take([ORDERS.name], 1)
    assert (await engine.places.balance()).accepted == 1
    await replace(tmp_path, *LOG)
    for _ in range(2):
        with pytest.raises(StorageLostError, match="was replaced") as caught:
            await use(engine)
        assert str(tmp_path / "headway.db") in str(caught.value)
        with pytest.raises(StorageLostError):
            await engine.finisher.finish([unit(old, CLOCK.now())])
    assert names(tmp_path / "headway.db") == {"new"}
    assert names(tmp_path / "old.db") == {"old"}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("lost", ["headway.db-wal", "headway.db-shm"])
async def test_a_log_that_was_removed_is_missed(
    tmp_path: Path, engine: SqliteEngine, use: Use, lost: str
) -> None:
    await publish(engine, "old")
    (tmp_path / lost).unlink()
    with pytest.raises(StorageLostError, match=lost):  # noqa: PT012
        async with asyncio.timeout(10):
            while True:  # the log is looked at a few times a second
                await use(engine)
    await closed(engine)
    assert "old" in names(tmp_path / "headway.db")  # as the last connection was closed


async def test_a_commit_into_a_file_that_was_removed_meanwhile_is_no_success(
    tmp_path: Path, engine: SqliteEngine
) -> None:
    def remove(_connection: sqlite3.Connection) -> None:
        (tmp_path / "headway.db").unlink(missing_ok=True)

    await publish(engine, "old")
    (old,) = await engine.bus.take([ORDERS.name], 1)
    with pytest.raises(StorageLostError, match="was removed"):
        await engine.finisher.finish([unit(old, CLOCK.now(), bodies=(remove,))])


async def test_the_log_of_the_old_file_is_not_taken_for_changes_of_the_new_one(
    tmp_path: Path, engine: SqliteEngine
) -> None:
    await publish(engine, "old")
    await replace(tmp_path)
    with pytest.raises(StorageLostError, match="-wal and -shm"):
        await publish(engine, "more")
    later = engine_on(tmp_path / "headway.db")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="log of the old one"):
            await publish(later, "more")
        with pytest.raises(ConfigurationError, match="log of the old one"):
            await later.places.balance()
    for suffix in LOG:
        (tmp_path / f"headway.db{suffix}").rename(tmp_path / f"old.db{suffix}")
    await publish(later, "more")
    await later.bus.close()
    assert names(tmp_path / "headway.db") == {"new", "more"}
    assert names(tmp_path / "old.db") == {"old"}


@pytest.mark.parametrize("use", USES)
async def test_a_file_that_was_removed_is_missed_and_not_made_anew(
    tmp_path: Path, engine: SqliteEngine, use: Use
) -> None:
    await publish(engine, "old")
    path = tmp_path / "headway.db"
    path.rename(tmp_path / "aside.db")
    for _ in range(3):
        with pytest.raises(StorageLostError, match="was removed") as caught:
            await use(engine)
        assert str(path) in str(caught.value)
        assert not path.exists()
    await closed(engine)
    # It is brought back, and the next process finds all that was in it and in its log.
    (tmp_path / "aside.db").rename(path)
    later = engine_on(path)
    await later.bus.open(QUEUES)
    assert operations(await later.bus.take([ORDERS.name], 1)) == ["old"]
    await later.bus.close()
