"""What a body of the user's own can do to the commit that it shares: nothing but write."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from headway.adapters.sqlite import liveness
from headway.core.errors import TransactionEndedError
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


def says(*statements: str) -> Callable[[Any], None]:
    def body(connection: Any) -> None:
        connection.execute("insert into own values ('half')")
        for statement in statements:
            connection.execute(statement)

    body.__name__ = statements[-1]
    return body


def says_and_swallows(statement: str) -> Callable[[Any], None]:
    def body(connection: Any) -> None:
        with suppress(sqlite3.Error):
            connection.execute(statement)

    body.__name__ = f"swallows {statement}"
    return body


def leaves_with(error: BaseException) -> Callable[[Any], None]:
    def body(connection: Any) -> None:
        connection.execute("insert into own values ('half')")
        raise error

    body.__name__ = f"leaves with {type(error).__name__}"
    return body


def generates(connection: Any) -> Iterator[None]:
    connection.execute("insert into own values ('half')")
    yield


async def awaits(connection: Any) -> None:
    connection.execute("insert into own values ('half')")


async def generates_later(connection: Any) -> AsyncIterator[None]:
    connection.execute("insert into own values ('half')")
    yield


def gives_a_generator(connection: Any) -> object:
    return (connection.execute("insert into own values (?)", (text,)) for text in ["half"])


def replaces_the_authorizer(connection: Any) -> None:
    connection.set_authorizer(lambda *_: sqlite3.SQLITE_OK)
    connection.execute("pragma query_only = on")


def removes_the_authorizer(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    connection.set_authorizer(None)


def denies_everything(connection: Any) -> None:
    connection.execute("insert into own values ('half')")
    connection.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)


def repeats_a_statement_of_ours(connection: Any) -> None:
    connection.execute(liveness._LEAVE, ("x",))


SETTINGS = [
    "pragma query_only = on",
    "pragma locking_mode = exclusive",
    "pragma user_version = 7",
    "PRAGMA Application_Id(7)",
    "pragma defer_foreign_keys = on",
    "pragma writable_schema = on",
    "attach ':memory:' as other",
    "detach main",
    "drop table headway_items",
    "alter table headway_items rename to lost",
    "alter table HEADWAY_ITEMS add column mine",
    "drop index headway_done_at",
    "create index mine on headway_items (body)",
    "create table headway_mine (x)",
    "create temp table headway_items (x)",
    "create view headway_mine as select 1",
    "create trigger mine after insert on headway_done begin select raise(abort, 'no'); end",
    "create temp trigger mine after insert on headway_done begin select raise(abort, 'no'); end",
    "insert into headway_documents values (99, 'c', 'd', '{}')",
    "update headway_items set token = null",
    "delete from Headway_Workers",
]
TRICKS = [
    says("create temp table mine (x)", "alter table temp.mine rename to headway_items"),
    says(
        "create temp trigger mine after insert on own begin delete from headway_items; end",
        "insert into own values ('more')",
    ),
    generates,
    awaits,
    generates_later,
    gives_a_generator,
    replaces_the_authorizer,
    removes_the_authorizer,
    denies_everything,
    repeats_a_statement_of_ours,
]
ENDS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]

HOSTILE: list[Callable[[Any], object]] = [
    *(says(statement) for statement in SETTINGS),
    *(says_and_swallows(statement) for statement in SETTINGS),
    *TRICKS,
    *(leaves_with(error) for error in ENDS),
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
    assert connection.execute("pragma user_version").fetchone() == (1,)
    assert connection.execute("select count(*) from headway_items").fetchone() == (2,)


def makes_tables(connection: Any) -> None:
    connection.execute("create temp table mine (x)")
    connection.execute("create table other (x, y)")
    connection.execute("create index other_x on other (x)")
    connection.execute(
        "create trigger t after insert on own begin insert into other (x) values (1); end"
    )


@pytest.mark.parametrize("body", [limits, stops_everything, traces, reads, makes_tables])
async def test_what_a_body_changes_about_its_connection_ends_with_it(
    harness: SqliteHarness, body: Callable[[Any], None]
) -> None:
    engine = await opened(harness)
    await publish(engine, "a", "b")
    now = harness.clock.now()
    first, second = await take(harness, engine, 2)
    finishes = await engine.finisher.finish([unit(first, now, bodies=(body,)), unit(second, now)])
    assert [finish.outcome for finish in finishes] == [Outcome.COMMITTED] * 2
    await publish(engine, "c")
    await take_one(harness, engine)


@pytest.mark.parametrize("body", [says(SETTINGS[0]), replaces_the_authorizer, closes])
async def test_a_refusal_that_no_retry_can_mend_says_so(
    harness: SqliteHarness, body: Callable[[Any], None]
) -> None:
    engine = await opened(harness)
    await publish(engine, "a")
    delivery = await take_one(harness, engine)
    (finish,) = await engine.finisher.finish([unit(delivery, harness.clock.now(), bodies=(body,))])
    assert isinstance(finish.error, TransactionEndedError)
    assert "the body" in str(finish.error)
