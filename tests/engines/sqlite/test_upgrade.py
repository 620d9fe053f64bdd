"""A newer Headway upgrades a file where it is. The next version is made up: it adds one table."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from pkgutil import resolve_name

import pytest
from typer.testing import CliRunner

from headway import ConfigurationError
from headway.clock import SystemChance, SystemClock
from headway.testing.conformance.balancing import balanced
from headway.testing.conformance.examples import ORDERS, PATIENCE, message, unit
from headway.testing.engines import SqliteEngine, sqlite_engine
from tests.commands import app

STEPS = "headway.adapters.sqlite.schema.STEPS"
NEXT = ["create table headway_next (x)", "alter table headway_items add column y text"]
CLOCK = SystemClock()


@contextmanager
def next_version() -> Iterator[None]:
    """Make this process the next version of Headway for the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(STEPS, (*resolve_name(STEPS), NEXT))
        yield


def engine_on(path: Path) -> SqliteEngine:
    return sqlite_engine(path, CLOCK, SystemChance(), synchronous="off")


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("pragma user_version").fetchone()
    return int(version)


def schema(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("select sql from sqlite_master where sql is not null")
        return {" ".join(sql.split()) for (sql,) in rows}


@pytest.fixture
async def old(tmp_path: Path) -> Path:
    """Give a file with an event and a document."""
    path = tmp_path / "old.db"
    engine = engine_on(path)
    await engine.bus.open([ORDERS])
    await engine.bus.publish([message("a")])
    await engine.bus.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        row = "insert into headway_documents (collection, id, body) values ('docs', 'one', '{}')"
        connection.execute(row)
    return path


async def test_an_old_file_is_upgraded_once_and_keeps_its_contents(
    old: Path, tmp_path: Path
) -> None:
    with next_version():
        engines = [engine_on(old) for _ in range(8)]  # all at once: one of them upgrades the file
        await asyncio.gather(*(each.bus.open([]) for each in engines))
        new = engine_on(tmp_path / "new.db")
        await new.bus.open([])
    assert version(old) == version(tmp_path / "new.db") == 2
    assert schema(old) == schema(tmp_path / "new.db")
    await balanced(engines[0], {"ready": 1})
    assert set(await engines[0].documents.fetch("docs", ["one"])) == {"one"}
    for each in (*engines, new):
        await each.bus.close()


async def test_workers_of_both_versions_use_the_file_side_by_side(old: Path) -> None:
    before = engine_on(old)
    await before.bus.open([ORDERS])
    with next_version():
        after = engine_on(old)
        await after.bus.open([ORDERS])
        await after.bus.publish([message("b")])
    await before.bus.publish([message("c")])
    for engine in (before, after):
        taken = await engine.bus.take([ORDERS.name], 1, PATIENCE)
        await engine.finisher.finish([unit(each, CLOCK.now()) for each in taken])
    for engine in (before, after):
        await balanced(engine, {"ready": 1, "done": 2})
    await before.bus.close()
    await after.bus.close()


async def test_a_file_that_is_only_read_keeps_its_version(old: Path) -> None:
    before = schema(old)
    with next_version():
        engine = engine_on(old)
        assert set(await engine.documents.fetch("docs", ["one"])) == {"one"}
        await balanced(engine, {"ready": 1})
        await engine.bus.close()
    assert (version(old), schema(old)) == (1, before)


@pytest.mark.parametrize(
    "words",
    [
        "verify",
        "failed list",
        "failed history",
        "unrouted list",
        "documents stuck docs",
        "documents history",
        "config show",
    ],
)
def test_a_command_that_only_reads_keeps_the_version_of_a_file(
    old: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_BUS", f"sqlite:///{old}")
    with next_version():
        done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output
    assert version(old) == 1


async def test_a_read_that_needs_the_next_version_names_both_versions(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:  # as if the next version had added it
        connection.execute("drop table headway_unrouted")
    with next_version():
        engine = engine_on(old)
        with pytest.raises(ConfigurationError) as caught:
            await engine.places.balance()
        await engine.bus.close()
    assert repr(str(old)) in str(caught.value)
    assert "version 1, and this version of Headway needs 2" in str(caught.value)
    assert version(old) == 1


async def test_an_upgrade_that_fails_leaves_the_file_as_it_was(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("alter table headway_items add column y text")  # the second statement
    before = schema(old)
    with next_version():
        engine = engine_on(old)
        with pytest.raises(sqlite3.OperationalError, match="duplicate column"):
            await engine.bus.open([])
        await engine.bus.close()
    assert (version(old), schema(old)) == (1, before)


async def test_a_process_that_runs_goes_on_when_a_newer_one_upgrades_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "headway.db"
    running = sqlite_engine(path, SystemClock(), SystemChance())
    await running.bus.open([])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma user_version = 99")
    # Its first reads and its first other writer open the file only now.
    assert dict(await running.documents.fetch("orders", ["a"])) == {}
    assert (await running.places.balance()).accepted == 0
    await running.bus.close()
    newly_started = sqlite_engine(path, SystemClock(), SystemChance())
    with pytest.raises(ConfigurationError):
        await newly_started.bus.open([])
    await newly_started.bus.close()
