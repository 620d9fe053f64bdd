"""A file that an older Headway made is brought up to date where it is."""

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from headway import ConfigurationError, Lifecycle
from headway.adapters.sqlite.connection import Location
from headway.adapters.sqlite.rows import ITEM_COLUMNS
from headway.adapters.sqlite.schema import STEPS, VERSION, open_file
from headway.clock import SystemChance, SystemClock
from headway.testing.conformance.balancing import balanced
from headway.testing.conformance.examples import MAILS, ORDERS, QUEUES, publish
from headway.testing.engines import sqlite_engine
from headway.testing.ports import SweepRule, View

VERSION_1 = Path(__file__).with_name("version_1.sql")
UNROUTED_SINCE = 7
NEW = (
    "headway_held", "headway_jumps", "headway_leases", "headway_notes", "headway_sequences",
    "headway_time", "headway_totals", "headway_versions",
)  # fmt: skip


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_1.read_text())
    return path


def tables(path: Path) -> tuple[int, tuple[str, ...]]:
    """Say which version it is, and which of the new tables are there."""
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("pragma user_version").fetchone()
        names = {name for (name,) in connection.execute("select name from sqlite_master")}
    return version, tuple(name for name in NEW if name in names)


async def test_an_old_file_is_brought_up_to_date_and_keeps_what_is_in_it(old: Path) -> None:
    engine = sqlite_engine(old, SystemClock(), SystemChance(), synchronous="off")
    assert engine.sweeping is not None
    await engine.bus.open([])
    assert tables(old) == (VERSION, NEW)
    await balanced(engine, {"ready": 1, "done": 1})
    assert set(await engine.documents.fetch("docs", ["one"])) == {"one"}
    rule = SweepRule(lifecycle=Lifecycle("docs"))
    await engine.sweeping.candidates.prepare([rule])
    now = engine_now = SystemClock().now()
    scan = engine.sweeping.candidates.scan(
        rule, View.FAILED, engine_now, newest_first=True, page=10
    )
    assert [[each["_id"] for each in page] async for page in scan] == [["one"]]
    await engine.history.append({"at": now.isoformat(), "who": "me"})
    assert len(await engine.history.latest(5)) == 1
    assert await engine.sweeping.totals.add("g", {"n": 1}) == {"n": 1}
    await engine.bus.close()


def made_by(version: int, old: Path) -> None:
    """Make it a file of this version."""
    with closing(sqlite3.connect(old, isolation_level=None)) as connection:
        for statement in (each for step in STEPS[1:version] for each in step):
            connection.execute(statement)
        connection.execute(f"pragma user_version = {version}")


@pytest.mark.parametrize("version", range(1, VERSION))
async def test_a_file_that_is_only_read_keeps_its_version(old: Path, version: int) -> None:
    made_by(version, old)
    before = tables(old)
    engine = sqlite_engine(old, SystemClock(), SystemChance())
    assert [each.letters for each in await engine.letters.queues()] == [0]
    assert set(await engine.documents.fetch("docs", ["one"])) == {"one"}
    if version >= UNROUTED_SINCE:
        await balanced(engine, {"ready": 1, "done": 1})
    else:
        with pytest.raises(ConfigurationError) as caught:
            await engine.places.balance()
        assert str(caught.value) == (
            f"the database file {str(old)!r} has schema version {version}, and this version of "
            f"Headway needs {VERSION}. A worker of this version upgrades it when it starts; after "
            "that no worker of the older version can start"
        )
    with pytest.raises(ConfigurationError, match=f"has schema version {version}"):
        await engine.bus.live_versions(ORDERS.name)
    assert tables(old) == before
    await engine.bus.open([ORDERS])
    assert not await engine.bus.live_versions(ORDERS.name)
    assert tables(old) == (VERSION, NEW)
    await engine.bus.close()


@pytest.mark.parametrize("version", range(1, VERSION))
async def test_a_file_of_any_older_version_is_brought_up_to_date(old: Path, version: int) -> None:
    made_by(version, old)
    open_file(Location(path=old)).close()
    assert tables(old) == (VERSION, NEW)
    engine = sqlite_engine(old, SystemClock(), SystemChance(), synchronous="off")
    await balanced(engine, {"ready": 1, "done": 1})
    await engine.bus.close()


@pytest.mark.parametrize(
    "words",
    [
        "verify",
        "verify --against {listed}",
        "failed list",
        "failed inspect q.failed",
        "failed history",
        "unrouted list",
        "unrouted show",
        "unrouted history",
        "documents stuck docs",
        "documents history",
        "config show",
    ],
)
def test_a_command_that_only_reads_keeps_the_version_of_a_file(old: Path, words: str) -> None:
    made_by(VERSION - 1, old)
    before = tables(old)
    listed = old.with_name("listed.txt")
    listed.write_text("waits\nended\n")
    done = headway(old, *words.format(listed=listed).split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert tables(old) == before


def test_a_command_that_cannot_read_an_older_file_says_so(old: Path) -> None:
    done = headway(old, "verify")
    assert done.returncode == 2
    assert done.stderr.startswith("headway: ")
    assert "has schema version 1, and this version of Headway needs 8." in done.stderr
    assert tables(old)[0] == 1


def headway(file: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headway.apps.cli", *words],
        env={"PATH": "/usr/bin:/bin", "HOME": "/", "HEADWAY_BUS": f"sqlite:///{file}"},
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_of_many_who_open_an_old_file_at_once_one_brings_it_up_to_date(old: Path) -> None:
    errors: list[BaseException] = []
    together = threading.Barrier(8)

    def opens() -> None:
        try:
            together.wait()
            open_file(Location(path=old)).close()
        except BaseException as error:  # noqa: BLE001 (a thread would swallow it)
            errors.append(error)

    threads = [threading.Thread(target=opens) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert tables(old) == (VERSION, NEW)


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("create table headway_notes (x)")
    with pytest.raises(sqlite3.OperationalError, match="headway_notes already exists"):
        open_file(Location(path=old))
    assert tables(old) == (1, ("headway_notes",))


def test_an_old_file_and_a_new_one_have_the_same_tables(old: Path, tmp_path: Path) -> None:
    def schema(path: Path) -> set[str]:
        with closing(open_file(Location(path=path))) as connection:
            rows = connection.execute("select sql from sqlite_master where sql is not null")
            return {" ".join(sql.split()) for (sql,) in rows}

    assert schema(old) == schema(tmp_path / "new.db")


async def test_what_a_process_of_an_older_version_did_is_counted_when_a_worker_starts(
    tmp_path: Path,
) -> None:
    path = tmp_path / "headway.db"
    clock = SystemClock()
    first = sqlite_engine(path, clock, SystemChance(), synchronous="off")
    await first.bus.open(QUEUES)
    await publish(first, "a", "b", "c")
    await first.bus.take([ORDERS.name], 2)
    with closing(sqlite3.connect(path)) as connection, connection:
        # It settles and publishes without a word about the number of events.
        connection.execute("delete from headway_items where token is not null")
        for queue in (ORDERS.name, MAILS.name, MAILS.name):
            connection.execute(
                f"insert into headway_items ({ITEM_COLUMNS}) "
                "select ?, due, hex(randomblob(8)), generation, failures, not_yet, first_seen, "
                "parked_seconds, parked_since, requeues, history, refusals, hops, body "
                "from headway_items limit 1",
                (queue,),
            )
    await first.bus.take([MAILS.name], 1)
    second = sqlite_engine(path, clock, SystemChance(), synchronous="off")
    await second.bus.open([ORDERS])
    for engine in (first, second):
        depths = await engine.places.depths()
        assert depths.queues == (await engine.places.balance()).queues
        assert {q.queue: (q.ready, q.leased) for q in depths.queues} == {
            ORDERS.name: (2, 0),
            MAILS.name: (1, 1),
        }
    await first.bus.close()
    await second.bus.close()


async def test_while_an_older_version_works_no_depth_is_below_nothing(tmp_path: Path) -> None:
    path = tmp_path / "headway.db"
    engine = sqlite_engine(path, SystemClock(), SystemChance(), synchronous="off")
    await engine.bus.open(QUEUES)
    await publish(engine, "a", "b", "c")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update headway_queues set items = -5")
    assert [q.ready for q in (await engine.places.depths()).queues] == [0, 1]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("delete from headway_items")
    assert [q.ready for q in (await engine.places.depths()).queues] == [0, 0]
    await engine.bus.close()
