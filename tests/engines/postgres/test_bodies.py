"""What a body of the user's own can do to the commit that it shares: nothing but write."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from headway.errors import TransactionEndedError, TransactionRolledBackError
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.conformance.examples import kinds, opened, publish, take, unit
from headway.testing.ports import Finish, Increment, Outcome
from tests.engines.pairs.postgres_harness import PostgresHarness, connected

pytestmark = pytest.mark.server("postgresql")
Body = Callable[[Any], Awaitable[object]]
OWN = """
create table own (n serial, text text unique deferrable initially deferred);
insert into own (text) values ('there')
"""


@pytest.fixture
async def harness(harness: PostgresHarness) -> PostgresHarness:
    async with connected(harness.url) as connection:
        await connection.execute(OWN)
    return harness


def says(*statements: str, swallows: bool = False) -> Body:
    async def body(connection: Any) -> None:
        await connection.execute("insert into own (text) values ('half')")
        for statement in statements:
            with suppress(*[Exception] * swallows):
                await connection.execute(statement)

    body.__name__ = f"{'swallows' if swallows else 'says'} {statements[-1]}"
    return body


async def prepares_commit(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    await (await connection.prepare("  /* quietly */ commit")).fetch()


async def commits_what_it_did_not_begin(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    await connection._top_xact.commit()


def calls(method: str) -> Body:
    async def body(connection: Any) -> None:
        await connection.execute("insert into own (text) values ('half')")
        ended = getattr(connection, method)()
        if ended is not None:
            await ended

    body.__name__ = f"calls {method}"
    return body


async def times_out(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    await connection.execute("select pg_sleep(60)", timeout=0.05)


def forgets_in_a_plain_function(connection: Any) -> None:
    connection.execute("insert into own (text) values ('half')")


async def forgets_to_await(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    connection.execute("insert into own (text) values ('other half')")
    await connection.fetch("select * from own")


MORE = "insert into own (text) values ('other half')"
CHECKED = "set constraints all immediate"
UNDONE_AND_COMMITTED = (f"savepoint mine; {MORE}", CHECKED, f"rollback to mine; {MORE}", "commit")
ENDING: list[Body] = [
    *(
        says(statement)
        for statement in (
            "commit",
            "COMMIT; begin",
            "end",
            "abort",
            "release headway_unit",
            'rollback to savepoint "headway_unit"',
            "prepare transaction 'x'",
            "/* atomic */ commit and chain",
            "/* atomic */ commit; begin; savepoint headway_unit",
            "/* atomic */ rollback; insert into own (text) values ('half')",
            "/* atomic */ rollback; begin; savepoint headway_unit; insert into own values (0, 'h')",
            "/* atomic */ set constraints all immediate; set constraints all immediate; commit",
            "create function one() returns int return 1; begin; select 'atomic'; end",
            "do $$ begin insert into own (text) values ('half'); commit; end $$",
        )
    ),
    says(
        "create or replace procedure half() language plpgsql as $$ begin commit; end $$",
        "call half()",
    ),
    says(CHECKED, f"{MORE}; /* atomic */ commit"),
    says(*UNDONE_AND_COMMITTED),
    says("commit", swallows=True),
    says("rollback", swallows=True),
    says("/* atomic */ commit", MORE, swallows=True),
    prepares_commit,
    commits_what_it_did_not_begin,
    *(calls(method) for method in ("close", "terminate", "reset")),
]
FAILING: list[Any] = [
    says("select 1/0", swallows=True),
    says("select 1/0"),
    says("insert into own (text) values ('there')"),  # which only COMMIT finds out
    says("select no_such_column from own"),
    says("select pg_terminate_backend(pg_backend_pid())"),
    says("select pg_terminate_backend(pg_backend_pid())", swallows=True),
    times_out,
    forgets_in_a_plain_function,
    forgets_to_await,
]


async def among_others(harness: PostgresHarness, body: Body) -> Finish:
    """Let a body be refused between two that are not."""
    engine = await opened(harness)
    await publish(engine, "a", "b", "c")

    def writes(text: str) -> Body:
        return lambda connection: connection.execute("insert into own (text) values ($1)", text)

    count = (Increment("counters", "all", "n"),)
    bodies = [(writes("before"),), (body,), (writes("after"),)]
    units = [
        unit(delivery, harness.clock.now(), writes=count, bodies=its)
        for delivery, its in zip(await take(harness, engine, 3), bodies, strict=True)
    ]
    finishes = await engine.finisher.finish(units)
    assert kinds(finishes) == [Outcome.COMMITTED, Outcome.REFUSED, Outcome.COMMITTED]
    assert await harness.rows() == ["there", "before", "after"]
    assert (await engine.documents.fetch("counters", ["all"]))["all"]["n"] == 2
    # Its delivery is still ours, and the store goes on.
    (again,) = await engine.finisher.finish([unit(units[1].delivery, harness.clock.now())])
    assert again.outcome is Outcome.COMMITTED
    return finishes[1]


@pytest.mark.parametrize("body", ENDING, ids=lambda body: body.__name__)
async def test_a_body_that_ends_the_transaction_is_refused_alone(
    harness: PostgresHarness, body: Body
) -> None:
    finish = await among_others(harness, body)
    assert isinstance(finish.error, TransactionEndedError)


@pytest.mark.parametrize("body", FAILING, ids=lambda body: body.__name__)
async def test_a_body_that_fails_is_refused_alone(harness: PostgresHarness, body: Body) -> None:
    finish = await among_others(harness, body)
    assert isinstance(finish.error, Exception)
    if body is FAILING[0]:
        assert isinstance(finish.error, TransactionRolledBackError)
    if "forgets" in body.__name__:
        line = body.__code__.co_firstlineno + (1 if "plain" in body.__name__ else 2)
        assert f"test_bodies.py:{line} " in str(finish.error)
        assert DEFAULT_CLASSIFIER.classify(finish.error).verdict is Verdict.PERMANENT
    if "terminate" in body.__name__:
        assert DEFAULT_CLASSIFIER.classify(finish.error).verdict is Verdict.TRANSIENT


async def test_a_body_may_nest_transactions_and_read_what_its_event_wrote(
    harness: PostgresHarness,
) -> None:
    seen: list[Any] = []

    async def body(connection: Any) -> None:
        assert isinstance(connection, asyncpg.Connection)
        with suppress(asyncpg.DivisionByZeroError):
            async with connection.transaction():
                await connection.execute("insert into own (text) values ('undone')")
                await connection.execute("select 1/0")
        async with connection.transaction():
            await connection.execute("savepoint mine; rollback to mine; release mine")
            await connection.execute("insert into own (text) values ('kept; commit')")
        seen.append(await connection.fetchval("select body ->> 'n' from headway_documents"))
        for _ in range(3):
            await connection.execute("set constraints all immediate")

    engine = await opened(harness)
    await publish(engine, "a")
    units = [
        unit(each, harness.clock.now(), writes=(Increment("docs", "1", "n"),), bodies=(body,))
        for each in await take(harness, engine, 1)
    ]
    assert kinds(await engine.finisher.finish(units)) == [Outcome.COMMITTED]
    assert await harness.rows() == ["there", "kept; commit"]
    assert seen == ["1"]
    async with connected(harness.url) as connection:
        assert await connection.fetchval("select count(*) from headway_guard") == 0


async def test_a_body_whose_connection_is_lost_runs_again(harness: PostgresHarness) -> None:
    runs: list[int] = []

    async def body(connection: Any) -> None:
        await connection.execute("insert into own (text) values ('once')")
        runs.append(connection.get_server_pid())
        if len(runs) == 1:
            async with connected(harness.url) as other:
                await other.execute("select pg_terminate_backend($1)", runs[0])
            await connection.execute("select 1")

    engine = await opened(harness)
    await publish(engine, "a")
    (delivery,) = await take(harness, engine, 1)
    finishes = await engine.finisher.finish([unit(delivery, harness.clock.now(), bodies=(body,))])
    assert kinds(finishes) == [Outcome.COMMITTED]
    assert len(set(runs)) == len(runs) == 2
    assert await harness.rows() == ["there", "once"]


async def teaches(connection: Any) -> None:
    for name in ("text", "jsonb"):
        await connection.set_type_codec(
            name, encoder=lambda _: "wrong", decoder=lambda _: "wrong", schema="pg_catalog"
        )


async def sets(connection: Any) -> None:
    await connection.execute("create role no_such_user; set role no_such_user")
    await connection.execute("set search_path = pg_catalog; set default_transaction_read_only = on")
    await connection.execute("create temp table headway_documents (x int)")
    await connection.execute("select pg_advisory_lock(1); listen all_of_it")
    await connection.execute("set statement_timeout = 1")


@pytest.mark.parametrize("body", [teaches, sets])
async def test_what_a_body_changes_about_its_connection_ends_with_it(
    harness: PostgresHarness, body: Body
) -> None:
    engine = await opened(harness)
    await publish(engine, *"abcd")
    taken = await take(harness, engine, 4)
    now = harness.clock.now()
    count = (Increment("docs", "1", "n"),)
    for n, delivery in enumerate(taken):
        bodies = (body,) if n % 2 == 0 else ()
        (finish,) = await engine.finisher.finish([unit(delivery, now, writes=count, bodies=bodies)])
        assert finish.outcome is (Outcome.REFUSED if n == 2 and body is sets else Outcome.COMMITTED)
        found = await engine.documents.fetch("docs", ["1"])
        assert set(found["1"]) == {"_id", "n"}
    async with connected(harness.url) as connection:
        assert (
            await connection.fetchval("select count(*) from pg_locks where locktype='advisory'")
            == 0
        )
        await connection.execute("drop role if exists no_such_user")
