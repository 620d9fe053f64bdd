"""Whose file it is, and what an engine leaves behind."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import ConfigurationError
from headway.adapters.sqlite import letters, schema
from headway.adapters.sqlite.connection import Location, connect
from headway.clock import SystemChance, SystemClock
from headway.testing.engines import SqliteEngine, sqlite_engine
from headway.testing.ports import Queue
from tests.engines.waiting import somebody_waits

QUEUE = Queue(name="q", event_types=("A",), failed="q.failed")


def engine_on(path: Path) -> SqliteEngine:
    return sqlite_engine(path, SystemClock(), SystemChance())


async def refusal(path: Path) -> str:
    engine = engine_on(path)
    answers = await asyncio.gather(
        engine.bus.open([QUEUE]),
        engine.places.balance(),
        return_exceptions=True,
    )
    await engine.bus.close()
    assert all(isinstance(answer, ConfigurationError) for answer in answers), answers
    assert len({str(answer) for answer in answers}) == 1
    assert str(path) in str(answers[0])
    return str(answers[0])


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("not a database, but somebody's notes\n" * 100)
    before = path.read_bytes()
    assert "not a SQLite database" in await refusal(path)
    assert path.read_bytes() == before


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    engine = engine_on(path)
    await engine.bus.open([QUEUE])
    await engine.bus.close()
    content = bytearray(path.read_bytes())
    content[16:100] = b"\xff" * 84
    path.write_bytes(content)
    assert "name another file" in await refusal(path)


@pytest.mark.parametrize("pragma", ["application_id = 7", "user_version = 7"])
async def test_a_file_of_another_program_is_refused(tmp_path: Path, pragma: str) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table theirs (x)")
        connection.execute(f"pragma {pragma}")
    assert "another program" in await refusal(path)
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("select name from sqlite_master").fetchall()
        assert names == [("theirs",)]


async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    engine = engine_on(path)
    await engine.bus.open([QUEUE])
    await engine.bus.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma user_version = 99")
    message = await refusal(path)
    assert "99" in message
    assert "upgrade Headway" in message


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


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "make the folder" in await refusal(tmp_path / "no" / "such" / "headway.db")


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="synchronous='fast'"):
        sqlite_engine(tmp_path / "x.db", SystemClock(), SystemChance(), synchronous="fast")
    with pytest.raises(ConfigurationError, match="lease"):
        sqlite_engine(tmp_path / "x.db", SystemClock(), SystemChance(), lease=timedelta())


async def test_ports_work_without_opening_the_bus(tmp_path: Path) -> None:
    engine = engine_on(tmp_path / "headway.db")
    assert (await engine.places.balance()).workers == 0
    assert list(await engine.letters.queues()) == []
    assert dict(await engine.records.find(["x"])) == {}
    await engine.bus.close()


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
    assert (path.read_bytes() if path.exists() else None) == before
    # Who writes makes them, and then they are read.
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
from headway.testing.engines import sqlite_engine
from headway.adapters.system.chance import SystemChance
from headway.adapters.system.clock import SystemClock
from headway.ports.bus import Queue

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


async def test_the_pages_of_a_failed_queue_are_read_without_sorting_it(tmp_path: Path) -> None:
    engine = engine_on(tmp_path / "letters.db")
    await engine.bus.open([QUEUE])
    await engine.bus.close()
    with closing(sqlite3.connect(tmp_path / "letters.db")) as file:
        plan = file.execute(f"explain query plan {letters._PAGE}", ("q.failed", 7, 100)).fetchall()
    assert [row[3] for row in plan] == [
        "SEARCH headway_letters USING INDEX headway_letters_queue (queue=? AND rowid>?)"
    ]


def test_tables_that_another_process_makes_between_two_looks_are_recognised(
    tmp_path: Path,
) -> None:
    location = Location(path=tmp_path / "headway.db", synchronous="off", busy=timedelta(seconds=5))

    class Overtaken(sqlite3.Connection):
        looks = 0

        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            found = super().execute(statement, *values)
            rows = found.fetchall()
            self.looks += 1
            if self.looks == 1:
                schema.open_file(location).close()
            return super().execute(f"select {rows[0][0]}") if rows else found

    with closing(
        sqlite3.connect(location.path, isolation_level=None, factory=Overtaken)
    ) as connection:
        schema.prepare(connection, location)
        assert connection.looks > 1


@pytest.mark.parametrize("pragma", ["fullfsync", "checkpoint_fullfsync"])
def test_a_commit_reaches_the_disk_on_macos_too(tmp_path: Path, pragma: str) -> None:
    with closing(connect(Location(path=tmp_path / "headway.db"))) as connection:
        assert connection.execute(f"pragma {pragma}").fetchone() == (1,)
