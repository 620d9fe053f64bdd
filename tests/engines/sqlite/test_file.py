"""Whose file it is, who may open it when, and what an engine leaves behind."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from headway import ConfigurationError
from headway.adapters.sqlite.connection import Location, connect
from headway.clock import SystemChance, SystemClock
from headway.testing.engines import SqliteEngine, sqlite_engine
from headway.testing.ports import Queue
from tests.engines.waiting import somebody_waits

QUEUE = Queue(name="q", event_types=("A",), failed="q.failed")


def engine_on(path: Path) -> SqliteEngine:
    return sqlite_engine(path, SystemClock(), SystemChance())


async def of_headway(path: Path) -> None:
    engine = engine_on(path)
    await engine.bus.open([QUEUE])
    await engine.bus.close()


def change(path: Path, kind: str) -> None:
    """Make it a file that is not for this version of Headway."""
    if kind == "no database":
        path.write_text("not a database, but notes of a person\n" * 100)
    elif kind == "damaged":
        content = bytearray(path.read_bytes())
        content[16:100] = b"\xff" * 84
        path.write_bytes(content)
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create table theirs (x)")
            application = "pragma application_id = 7"
            connection.execute(application if kind == "by its id" else "pragma user_version = 99")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("no database", "not a SQLite database"),
        ("damaged", "damaged"),
        ("by its id", "another program"),
        ("by its version", "another program"),
        ("newer", "99"),
    ],
)
async def test_a_file_that_is_not_for_this_version_is_refused_and_left_alone(
    tmp_path: Path, kind: str, why: str
) -> None:
    def content() -> object:
        if kind in {"no database", "damaged"}:
            return path.read_bytes()
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("select name from sqlite_master").fetchall()

    path = tmp_path / "headway.db"
    if kind in {"damaged", "newer"}:
        await of_headway(path)
    change(path, kind)
    before = content()
    assert why in await refusal(path)
    assert content() == before


async def refusal(path: Path) -> str:
    engine = engine_on(path)
    answers = await asyncio.gather(
        engine.bus.open([QUEUE]), engine.places.balance(), return_exceptions=True
    )
    await engine.bus.close()
    assert all(isinstance(answer, ConfigurationError) for answer in answers), answers
    assert len({str(answer) for answer in answers}) == 1
    assert str(path) in str(answers[0])
    return str(answers[0])


async def test_a_folder_that_is_not_there_and_wrong_settings_are_refused(tmp_path: Path) -> None:
    await refusal(tmp_path / "no" / "such" / "headway.db")
    with pytest.raises(ConfigurationError, match="synchronous='fast'"):
        sqlite_engine(tmp_path / "x.db", SystemClock(), SystemChance(), synchronous="fast")
    with pytest.raises(ConfigurationError, match="lease"):
        sqlite_engine(tmp_path / "x.db", SystemClock(), SystemChance(), lease=timedelta())


@pytest.mark.parametrize("name", ["a b.db", "100%.db", "who?.db", "#1.db", "käse ✓.db"])
async def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    await of_headway(tmp_path / name)
    assert (tmp_path / name).exists()


async def test_many_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    for number in range(5):
        engines = [engine_on(tmp_path / f"{number}.db") for _ in range(8)]
        await asyncio.gather(*(engine.bus.open([QUEUE]) for engine in engines))
        await asyncio.gather(*(engine.bus.close() for engine in engines))


def test_a_connection_that_another_thread_closes_does_not_look_like_a_lost_log(
    tmp_path: Path,
) -> None:
    location = Location(path=tmp_path / "headway.db")

    def open_and_close() -> None:
        for _ in range(200):
            connect(location).close()

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(open_and_close) for _ in range(2)]:
            done.result()


@pytest.mark.parametrize("pragma", ["fullfsync", "checkpoint_fullfsync"])
def test_a_commit_reaches_the_disk_on_macos_too(tmp_path: Path, pragma: str) -> None:
    with closing(connect(Location(path=tmp_path / "headway.db"))) as connection:
        assert connection.execute(f"pragma {pragma}").fetchone() == (1,)


@pytest.mark.parametrize("kind", ["missing", "empty", "theirs"])
async def test_reading_makes_no_tables(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "headway.db"
    if kind == "empty":
        path.touch()
    elif kind == "theirs":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create table theirs (x)")
    before = path.read_bytes() if path.exists() else None
    engine = engine_on(path)
    for _ in range(3):
        assert (await engine.places.balance()).accepted == 0
        assert (await engine.places.astray(5))[0] == 0
        assert list(await engine.letters.queues()) == []
        assert dict(await engine.records.find(["x"])) == {}
    assert (path.read_bytes() if path.exists() else None) == before
    # The first writer makes them, and then they are read.
    await engine.bus.open([QUEUE])
    assert (await engine.places.balance()).workers == 1
    assert [queue.name for queue in await engine.letters.queues()] == ["q.failed"]
    await engine.bus.close()


async def test_closing_ends_every_thread_and_may_be_repeated(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    engine = engine_on(tmp_path / "headway.db")
    await engine.bus.open([QUEUE])
    await engine.places.balance()
    waiting = asyncio.create_task(engine.bus.take(["q"], 1, timedelta(minutes=1)))
    await somebody_waits(engine)
    await engine.bus.close()
    assert list(await waiting) == []
    await engine.bus.close()
    ours = {t for t in set(threading.enumerate()) - before if t.name.startswith("headway")}
    assert ours == set()
    with pytest.raises(RuntimeError, match=r"headway\.db"):
        await engine.bus.publish([])


def test_a_process_that_forgets_to_close_can_end(tmp_path: Path) -> None:
    code = f"""
import asyncio
from headway.clock import SystemChance, SystemClock
from headway.testing.engines import sqlite_engine
from headway.testing.ports import Queue

async def main():
    engine = sqlite_engine({str(tmp_path / "headway.db")!r}, SystemClock(), SystemChance())
    await engine.bus.open([Queue(name="q", event_types=("A",), failed="f")])
    await engine.places.balance()

asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
