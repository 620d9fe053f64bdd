"""What a body of the user's own can do to the commit that it shares: nothing but write."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from headway.errors import TransactionEndedError
from headway.testing.conformance.examples import opened, publish, take, take_one, unit
from headway.testing.ports import Increment, Outcome
from tests.conformance.test_sqlite import SqliteHarness
from tests.engines.hostile_bodies import (
    HOSTILE,
    SETTINGS,
    closes,
    replaces_the_authorizer,
    says,
    suspends,
    waits,
)


@pytest.fixture
def harness(harness: SqliteHarness) -> SqliteHarness:
    with closing(sqlite3.connect(harness.path)) as connection:
        connection.execute("create table own (text unique)")
        connection.execute("insert into own values ('there')")
        connection.commit()
    return harness


@pytest.mark.parametrize("body", HOSTILE)
async def test_a_hostile_body_is_refused_alone(
    harness: SqliteHarness, body: Callable[[Any], object]
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


def uses_savepoints(connection: Any) -> None:
    connection.row_factory = sqlite3.Row
    connection.execute("savepoint mine")
    connection.execute("insert into own values ('undone')")
    connection.execute("rollback to mine")
    connection.execute("insert into own values ('kept')")
    connection.isolation_level = "IMMEDIATE"


def limits(connection: Any) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 10)
    connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 1)


def stops_everything(connection: Any) -> None:
    connection.set_progress_handler(lambda: 1, 1)


def traces(connection: Any) -> None:
    connection.set_trace_callback(lambda _: pytest.fail("a statement of others was traced"))


def reads(connection: Any) -> None:
    assert connection.execute("pragma table_info(own)").fetchall()
    assert connection.execute("select * from pragma_table_info('headway_items')").fetchall()
    assert connection.execute("pragma user_version").fetchone()[0] > 0
    assert connection.execute("select count(*) from headway_items").fetchone() == (2,)


def makes_tables(connection: Any) -> None:
    connection.execute("create temp table mine (x)")
    connection.execute("create table other (x, y)")
    connection.execute("create index other_x on other (x)")
    connection.execute(
        "create trigger t after insert on own begin insert into other (x) values (1); end"
    )


@pytest.mark.parametrize(
    "body", [uses_savepoints, limits, stops_everything, traces, reads, makes_tables]
)
async def test_what_a_body_may_change_about_its_connection_ends_with_it(
    harness: SqliteHarness, body: Callable[[Any], None]
) -> None:
    engine = await opened(harness)
    await publish(engine, "a", "b")
    now = harness.clock.now()
    first, second = await take(harness, engine, 2)
    finishes = await engine.finisher.finish([unit(first, now, bodies=(body,)), unit(second, now)])
    assert [finish.outcome for finish in finishes] == [Outcome.COMMITTED] * 2
    kept = ["kept"] if body is uses_savepoints else []
    assert await harness.rows() == ["there", *kept]
    await publish(engine, "c")
    await take_one(harness, engine)


@pytest.mark.parametrize("body", [says(SETTINGS[0]), replaces_the_authorizer, closes])
async def test_a_refusal_that_no_retry_can_mend_says_so(
    harness: SqliteHarness, body: Callable[[Any], None]
) -> None:
    assert isinstance(await refused(harness, body), TransactionEndedError)


@pytest.mark.parametrize("body", [suspends, waits])
async def test_a_body_that_suspends_is_refused_and_its_line_is_named(
    harness: SqliteHarness, body: Callable[[Any], object]
) -> None:
    error = await refused(harness, body)
    assert isinstance(error, TypeError)
    first = body.__code__.co_firstlineno
    assert f"hostile_bodies.py:{first} " in str(error)
    assert f"hostile_bodies.py:{first + 2}" in str(error)


async def refused(harness: SqliteHarness, body: Callable[[Any], object]) -> Exception | None:
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    (finish,) = await engine.finisher.finish([unit(delivery, harness.clock.now(), bodies=(body,))])
    assert finish.outcome is Outcome.REFUSED
    return finish.error
