"""What a body of the user's own can do to the commit that it shares: nothing but write."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from headway.core.writes import Increment
from headway.ports.commit import Outcome
from headway.testing.conformance.examples import opened, publish, take, take_one, unit
from tests.adapters.test_sqlite_engine import SqliteHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "headway.db")
    with closing(sqlite3.connect(harness.path)) as connection:
        connection.execute("create table own (text unique)")
        connection.execute("insert into own values ('there')")
        connection.commit()
    yield harness
    await harness.close()


def commits(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    connection.commit()


def executes_commit(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    connection.execute("COMMIT")


def runs_a_script(connection: Any) -> None:
    connection.executescript("insert into own values ('half');")


def rolls_back(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    connection.rollback()


def swallows(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    with suppress(sqlite3.Error):
        connection.rollback()


def releases_our_savepoint(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    connection.execute("release headway_unit")


def conflicts(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    connection.execute("insert or rollback into own values ('there')")


def conflicts_and_swallows(connection: Any) -> None:
    with suppress(sqlite3.Error):
        conflicts(connection)


def closes(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    connection.close()


def raises(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    raise ValueError("no")


HOSTILE = [
    commits,
    executes_commit,
    runs_a_script,
    rolls_back,
    swallows,
    releases_our_savepoint,
    conflicts,
    conflicts_and_swallows,
    closes,
    raises,
]


@pytest.mark.parametrize("body", HOSTILE)
async def test_a_hostile_body_is_refused_alone(
    harness: SqliteHarness, body: Callable[[Any], None]
) -> None:
    engine = await opened(harness)
    await publish(engine, "a", "b", "c")
    now = harness.clock.now()

    def writes(text: str) -> Callable[[Any], object]:
        return lambda connection: connection.execute("insert into own values (?)", (text,))

    count = (Increment("counters", "all", "n"),)
    units = [
        unit(delivery, now, writes=count, bodies=bodies)
        for delivery, bodies in zip(
            await take(harness, engine, 3),
            [(writes("before"),), (body,), (writes("after"),)],
            strict=True,
        )
    ]
    finishes = await engine.finisher.finish(units)
    assert [finish.outcome for finish in finishes] == [
        Outcome.COMMITTED,
        Outcome.REFUSED,
        Outcome.COMMITTED,
    ]
    assert finishes[1].error is not None
    assert await harness.rows() == ["there", "before", "after"]
    assert (await engine.documents.fetch("counters", ["all"]))["all"]["n"] == 2
    assert (await engine.places.astray(5))[0] == 0
    # Its delivery is still ours, and the engine goes on.
    (again,) = await engine.finisher.finish([unit(units[1].delivery, now)])
    assert again.outcome is Outcome.COMMITTED


async def test_a_body_may_use_savepoints_of_its_own_and_change_its_connection(
    harness: SqliteHarness,
) -> None:
    def body(connection: Any) -> None:
        connection.row_factory = sqlite3.Row
        connection.execute("savepoint mine")
        connection.execute("insert into own values ('undone')")
        connection.execute("rollback to mine")
        connection.execute("insert into own values ('kept')")
        connection.isolation_level = "IMMEDIATE"

    engine = await opened(harness)
    await publish(engine, "a", "b")
    now = harness.clock.now()
    for _ in range(2):
        delivery = await take_one(harness, engine)
        (finish,) = await engine.finisher.finish(
            [unit(delivery, now, bodies=(body,) if _ == 0 else ())]
        )
        assert finish.outcome is Outcome.COMMITTED
    assert await harness.rows() == ["there", "kept"]
