"""A file that an older Headway made is brought up to date where it is."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headway import ConfigurationError, Lifecycle
from headway.clock import SystemChance, SystemClock
from headway.testing.conformance.balancing import balanced
from headway.testing.conformance.examples import ORDERS
from headway.testing.engines import SqliteEngine, sqlite_engine
from headway.testing.ports import SweepRule, View
from tests.commands import app

VERSION_1 = Path(__file__).with_name("version_1.sql")
CLOCK = SystemClock()


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
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_1.read_text())
    return path


@pytest.fixture
async def new(tmp_path: Path) -> Path:
    path = tmp_path / "new.db"
    engine = engine_on(path)
    await engine.bus.open([ORDERS])
    await engine.bus.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        row = "insert into headway_documents (collection, id, body) values ('docs', 'one', '{}')"
        connection.execute(row)
    return path


async def test_an_old_file_is_brought_up_to_date_and_keeps_what_is_in_it(
    old: Path, new: Path
) -> None:
    engines = [engine_on(old) for _ in range(8)]  # one of those who open it at once does it
    await asyncio.gather(*(each.bus.open([]) for each in engines))
    assert (version(old), schema(old)) == (version(new), schema(new))
    engine = engines[0]
    assert engine.sweeping is not None
    await balanced(engine, {"ready": 1, "done": 1})
    assert set(await engine.documents.fetch("docs", ["one"])) == {"one"}
    rule = SweepRule(lifecycle=Lifecycle("docs"))
    await engine.sweeping.candidates.prepare([rule])
    now = CLOCK.now()
    scan = engine.sweeping.candidates.scan(rule, View.FAILED, now, newest_first=True, page=10)
    assert [[each["_id"] for each in page] async for page in scan] == [["one"]]
    await engine.history.append({"at": now.isoformat(), "who": "me"})
    assert len(await engine.history.latest(5)) == 1
    assert await engine.sweeping.totals.add("g", {"n": 1}) == {"n": 1}
    for each in engines:
        await each.bus.close()


async def test_a_file_that_is_only_read_keeps_its_version(old: Path, new: Path) -> None:
    before = schema(old)
    engine = engine_on(old)
    assert [each.letters for each in await engine.letters.queues()] == [0]
    assert set(await engine.documents.fetch("docs", ["one"])) == {"one"}
    for needs_new_tables in (engine.places.balance(), engine.bus.live_versions(ORDERS.name)):
        with pytest.raises(ConfigurationError) as caught:
            await needs_new_tables
        assert repr(str(old)) in str(caught.value)
        assert f"version 1, and this version of Headway needs {version(new)}" in str(caught.value)
    assert (version(old), schema(old)) == (1, before)
    await engine.bus.open([ORDERS])
    assert not await engine.bus.live_versions(ORDERS.name)
    assert version(old) == version(new)
    await engine.bus.close()


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
    new: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(new)) as connection:  # one before: no table has to be added
        connection.execute(f"pragma user_version = {version(new) - 1}")
    before = version(new)
    monkeypatch.setenv("HEADWAY_BUS", f"sqlite:///{new}")
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output
    assert version(new) == before


def test_a_command_that_cannot_read_an_older_file_says_so(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_BUS", f"sqlite:///{old}")
    done = CliRunner().invoke(app, ["verify"])
    assert isinstance(done.exception, ConfigurationError)
    assert "version 1," in str(done.exception)
    assert version(old) == 1


async def test_an_upgrade_that_fails_leaves_the_file_as_it_was(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("create table headway_notes (x)")
    before = schema(old)
    engine = engine_on(old)
    with pytest.raises(sqlite3.OperationalError, match="headway_notes already exists"):
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
