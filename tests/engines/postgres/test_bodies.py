"""What a body of the user's own can do to the commit that it shares: nothing but write."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from headway.errors import TransactionEndedError, TransactionRolledBackError
from headway.retrying import DEFAULT_CLASSIFIER, Verdict
from headway.testing.conformance.examples import kinds, opened, publish, take, unit
from headway.testing.ports import Finish, Increment, Outcome
from headway.testing.servers import PostgreSQL
from tests.engines.pairs.postgres_harness import PostgresHarness, connected, emptied, made_ready

pytestmark = pytest.mark.server("postgresql")
Body = Callable[[Any], Awaitable[object]]
OWN = """
create table own (n serial, text text unique deferrable initially deferred);
insert into own (text) values ('there')
"""


@pytest.fixture(scope="module")
def database(postgres_server: PostgreSQL) -> str:
    url = postgres_server.create_database()
    asyncio.run(made_ready(url))
    return url


@pytest.fixture
async def harness(database: str) -> AsyncIterator[PostgresHarness]:
    await emptied(database)
    harness = PostgresHarness(database)
    async with connected(harness.url) as connection:
        await connection.execute(OWN)
    yield harness
    await harness.close()


def says(*statements: str) -> Body:
    async def body(connection: Any) -> None:
        await connection.execute("insert into own (text) values ('half')")
        for statement in statements:
            await connection.execute(statement)

    body.__name__ = f"says {statements[-1]}"
    return body


def swallows(statement: str) -> Body:
    async def body(connection: Any) -> None:
        await connection.execute("insert into own (text) values ('half')")
        with suppress(Exception):
            await connection.execute(statement)

    body.__name__ = f"swallows {statement}"
    return body


async def fetches_commit(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    await connection.fetch("commit")


async def prepares_commit(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    await (await connection.prepare("  /* quietly */ commit")).fetch()


async def commits_what_it_did_not_begin(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    await connection._top_xact.commit()


async def closes(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    await connection.close()


async def terminates(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    connection.terminate()


async def resets(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    with suppress(Exception):
        await connection.reset()


async def times_out(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    await connection.execute("select pg_sleep(60)", timeout=0.05)


def forgets_in_a_plain_function(connection: Any) -> None:
    connection.execute("insert into own (text) values ('half')")


async def forgets_to_await(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    connection.execute("insert into own (text) values ('other half')")
    await connection.fetch("select * from own")


async def goes_on_after_commit(connection: Any) -> None:
    with suppress(Exception):
        await connection.execute("/* atomic */ commit")
    await connection.execute("insert into own (text) values ('half')")


async def calls_a_procedure(connection: Any) -> None:
    await connection.execute(
        "create or replace procedure half() language plpgsql as "
        "$$ begin insert into own (text) values ('half'); commit; end $$"
    )
    await connection.execute("call half()")


async def checks_and_commits(connection: Any) -> None:
    await connection.execute("set constraints all immediate")
    await connection.execute("insert into own (text) values ('half'); /* atomic */ commit")


async def checks_undoes_and_commits(connection: Any) -> None:
    await connection.execute("savepoint mine; insert into own (text) values ('undone')")
    await connection.execute("set constraints all immediate")
    await connection.execute("rollback to mine; insert into own (text) values ('half')")
    await connection.execute("commit")


async def checks_and_commits_at_once(connection: Any) -> None:
    await connection.execute("insert into own (text) values ('half')")
    await connection.execute("set constraints all immediate; /* atomic */ commit")


ENDING: list[Body] = [
    *(
        says(f"/* atomic */ {s}")
        for s in (
            "commit",
            "commit and chain",
            "commit; begin; savepoint headway_unit",
            "rollback",
            "rollback; insert into own (text) values ('half')",
            "rollback; begin; savepoint headway_unit; insert into own (text) values ('half')",
            "rollback and chain",
            "rollback to savepoint headway_unit",
            "prepare transaction 'x'",
            "set constraints all immediate; set constraints all immediate; commit",
        )
    ),
    says("create function one() returns int return 1; begin; select 'atomic'; end"),
    says("do $$ begin insert into own (text) values ('half'); commit; end $$"),
    calls_a_procedure,
    goes_on_after_commit,
    checks_and_commits,
    checks_and_commits_at_once,
    checks_undoes_and_commits,
    *(says(s) for s in ("commit", "COMMIT; begin", "rollback", "end", "abort", "rollback work")),
    *(says(s) for s in ("release headway_unit", 'rollback to savepoint "headway_unit"')),
    says("prepare transaction 'x'"),
    *(swallows(s) for s in ("commit", "rollback")),
    fetches_commit,
    prepares_commit,
    commits_what_it_did_not_begin,
    closes,
    terminates,
    resets,
]
FAILING: list[Any] = [
    swallows("select 1/0"),
    says("select 1/0"),
    says("insert into own (text) values ('there')"),  # which only COMMIT finds out
    says("select no_such_column from own"),
    says("select pg_terminate_backend(pg_backend_pid())"),
    swallows("select pg_terminate_backend(pg_backend_pid())"),
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
    assert "the body" in str(finish.error)


@pytest.mark.parametrize("body", FAILING, ids=lambda body: body.__name__)
async def test_a_body_that_fails_is_refused_alone(harness: PostgresHarness, body: Body) -> None:
    finish = await among_others(harness, body)
    assert isinstance(finish.error, Exception)
    if body is FAILING[0]:
        assert isinstance(finish.error, TransactionRolledBackError)
    if "forgets" in body.__name__:
        line = body.__code__.co_firstlineno + (1 if "plain" in body.__name__ else 2)
        assert f"the statement at test_postgres_store_bodies.py:{line} was never" in str(
            finish.error
        )
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
            name, encoder=lambda _: "spoilt", decoder=lambda _: "spoilt", schema="pg_catalog"
        )


async def sets(connection: Any) -> None:
    await connection.execute("create role nobody_at_all; set role nobody_at_all")
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
        await connection.execute("drop role if exists nobody_at_all")


async def test_who_is_cancelled_while_a_body_runs_is_cancelled(harness: PostgresHarness) -> None:
    begun = asyncio.Event()

    async def waits(connection: Any) -> None:
        await connection.execute("insert into own (text) values ('half')")
        begun.set()
        await asyncio.Event().wait()

    engine = await opened(harness)
    await publish(engine, "a")
    (delivery,) = await take(harness, engine, 1)
    now = harness.clock.now()
    task = asyncio.create_task(engine.finisher.finish([unit(delivery, now, bodies=(waits,))]))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kinds(await engine.finisher.finish([unit(delivery, now)])) == [Outcome.COMMITTED]
    assert await harness.rows() == ["there"]
