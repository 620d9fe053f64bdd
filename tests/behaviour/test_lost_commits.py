"""A connection that breaks before, during or after COMMIT: no event lost, none applied twice."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from headway import AlreadyStoredError, DuplicateEventError, OutcomeUnknownError
from headway.facts import CommitResolved
from headway.testing.chance import Seeded
from headway.testing.facts import Recorder
from headway.testing.proxy import Fault, Proxy
from headway.testing.servers import PostgreSQL
from tests.behaviour.engines import Asyncpg, Engine, Psycopg, PsycopgAsync

KINDS: dict[str, Callable[[str], Engine]] = {
    "asyncpg": Asyncpg,
    "psycopg": Psycopg,
    "psycopg-async": PsycopgAsync,
}
CUTS = [Fault.CUT_BEFORE, Fault.CUT_DURING, Fault.CUT_AFTER]
QUICKLY: dict[str, Any] = {"min_wait": 0.001, "max_wait": 0.05}


@pytest.fixture
def proxy(postgres_server: PostgreSQL) -> Iterator[Proxy]:
    with Proxy(*postgres_server.address) as proxy:
        yield proxy


@pytest.fixture(params=list(KINDS))
async def engine(request: pytest.FixtureRequest, postgres_database: str, proxy: Proxy) -> Engine:
    await Asyncpg(postgres_database).prepare()
    engine: Engine = KINDS[request.param](proxy.through(postgres_database))
    return engine


async def stored(database: str) -> tuple[int, int, int]:
    """Count what is there, past the proxy: effects, different operations, the counter."""
    rows = await Asyncpg(database).rows(
        "select count(*), count(distinct operation), (select total from counters) from effects"
    )
    return rows[0][0], rows[0][1], rows[0][2]


async def cut_at_every_commit(
    engine: Engine, proxy: Proxy, database: str, fault: Fault, times: int
) -> list[CommitResolved]:
    recorder, chance = Recorder(), Seeded(7)
    for number in range(times):
        proxy.heal()
        rule = proxy.when(b"COMMIT", fault)
        answer = await engine.store(f"op-{number}", observer=recorder, chance=chance, **QUICKLY)
        assert answer == f"stored op-{number}"
        assert rule.fired == 1
    assert await stored(database) == (times, times, times)
    return recorder.of(CommitResolved)


@pytest.mark.parametrize("fault", CUTS, ids=lambda fault: fault.name.lower())
async def test_a_cut_at_commit_is_resolved(
    engine: Engine, proxy: Proxy, postgres_database: str, fault: Fault
) -> None:
    resolved = await cut_at_every_commit(engine, proxy, postgres_database, fault, 10)
    assert len(resolved) == 10
    outcomes = {fact.committed for fact in resolved}
    if fault is Fault.CUT_BEFORE:
        assert outcomes == {False}
    if fault is Fault.CUT_AFTER:
        assert outcomes == {True}


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", CUTS, ids=lambda fault: fault.name.lower())
async def test_200_cuts_at_commit_are_resolved(
    engine: Engine,
    proxy: Proxy,
    postgres_database: str,
    fault: Fault,
    record_property: Any,
) -> None:
    resolved = await cut_at_every_commit(engine, proxy, postgres_database, fault, 200)
    committed = sum(fact.committed is True for fact in resolved)
    record_property(
        "shown", f"200 cuts, {committed} had been committed; 200 effects, none lost, none twice"
    )
    assert len(resolved) == 200


@pytest.mark.parametrize("fault", [Fault.HANG_BEFORE, Fault.HANG_AFTER], ids=lambda f: f.name)
async def test_a_commit_that_vanishes_without_a_word_is_resolved(
    proxy: Proxy, postgres_database: str, fault: Fault
) -> None:
    """The network swallows it: the server holds the locks of a session that nobody hears of."""
    engine = Asyncpg(proxy.through(postgres_database))
    await Asyncpg(postgres_database).prepare()
    engine.timeout = 0.5  # how the client finds out that nothing comes back
    recorder = Recorder()
    rule = proxy.when(b"COMMIT", fault)
    assert await engine.store("a", observer=recorder, **QUICKLY) == "stored a"
    assert rule.fired == 1
    (resolved,) = recorder.of(CommitResolved)
    assert resolved.committed is (fault is Fault.HANG_AFTER)
    assert await stored(postgres_database) == (1, 1, 1)


async def test_a_statement_that_vanishes_without_a_word_does_not_block_the_next_attempt(
    proxy: Proxy, postgres_database: str
) -> None:
    """The server waits inside a transaction that has written our row, for a client it lost."""
    engine = Asyncpg(proxy.through(postgres_database))
    await Asyncpg(postgres_database).prepare()
    engine.timeout = 0.5
    rule = proxy.when(b"update counters", Fault.HANG_BEFORE)
    assert await engine.store("a", **QUICKLY) == "stored a"
    assert rule.fired == 1
    assert await stored(postgres_database) == (1, 1, 1)


async def test_every_attempt_may_lose_its_connection_in_another_way(
    engine: Engine, proxy: Proxy, postgres_database: str
) -> None:
    for fault in CUTS:
        proxy.when(b"COMMIT", fault)
    assert await engine.store("a", **QUICKLY) == "stored a"
    assert await stored(postgres_database) == (1, 1, 1)


async def test_a_cut_in_the_body_runs_the_body_again(
    engine: Engine, proxy: Proxy, postgres_database: str
) -> None:
    recorder = Recorder()
    rule = proxy.when(b"update counters", Fault.CUT_BEFORE)
    assert await engine.store("a", observer=recorder, **QUICKLY) == "stored a"
    assert rule.fired == 1
    assert recorder.of(CommitResolved) == []
    assert await stored(postgres_database) == (1, 1, 1)


async def test_an_outcome_that_nobody_can_tell_is_said_to_be_unknown(
    engine: Engine, proxy: Proxy, postgres_database: str
) -> None:
    """The database stays away: nothing is guessed, and asking again with the token finds it."""
    proxy.when(b"COMMIT", Fault.CUT_AFTER)

    def go_away() -> None:
        proxy.refuse()

    with pytest.raises(OutcomeUnknownError, match=r"'a'.*this error's token") as caught:
        await engine.store("a", before=go_away, token="mine", **QUICKLY)
    assert caught.value.__cause__ is not None
    proxy.heal()
    with pytest.raises(AlreadyStoredError):
        await engine.store("a", token="mine", **QUICKLY)
    with pytest.raises(DuplicateEventError):
        await engine.store("a", token="another", **QUICKLY)
    assert await stored(postgres_database) == (1, 1, 1)


async def test_a_lost_commit_overtaken_by_another_caller_is_a_duplicate(
    proxy: Proxy, postgres_database: str
) -> None:
    """Ours did not get through, and before we ask, somebody else stores the same operation."""
    engine, other = Asyncpg(proxy.through(postgres_database)), Psycopg(postgres_database)
    await Asyncpg(postgres_database).prepare()
    proxy.when(b"COMMIT", Fault.CUT_BEFORE)

    class Meanwhile(Recorder):
        def tell(self, fact: Any) -> None:
            super().tell(fact)
            if len(self.facts) == 1:
                other.store_now("a")

    with pytest.raises(DuplicateEventError):
        await engine.store("a", observer=Meanwhile(), **QUICKLY)
    assert await stored(postgres_database) == (1, 1, 1)


@pytest.mark.parametrize("fault", CUTS, ids=lambda fault: fault.name.lower())
async def test_a_row_of_ones_own_serves_as_well(
    proxy: Proxy, postgres_database: str, fault: Fault
) -> None:
    """With `find` no operation row is written."""
    engine = Asyncpg(proxy.through(postgres_database))
    await Asyncpg(postgres_database).prepare()

    async def find(connection: Any) -> bool:
        return bool(await connection.fetchval("select 1 from effects where operation = 'a'"))

    proxy.when(b"COMMIT", fault)
    assert await engine.store("a", find=find, **QUICKLY) == "stored a"
    assert await stored(postgres_database) == (1, 1, 1)
    assert await engine.rows("select * from headway_operations") == []


async def test_a_crashed_server_is_waited_for(postgres_database: str) -> None:
    """The server itself is killed between two attempts; what it had confirmed is found."""
    with PostgreSQL() as server:
        url = server.create_database()
        engine = Asyncpg(url)
        await engine.prepare()
        await engine.store("before")
        server.kill()
        storing = asyncio.create_task(engine.store("after", stop_after=30, max_wait=0.3))
        server.start()
        assert await storing == "stored after"
        assert await stored(url) == (2, 2, 2)


async def test_a_server_that_lets_nobody_end_sessions_still_loses_nothing(
    proxy: Proxy, postgres_database: str
) -> None:
    connection = await asyncpg.connect(postgres_database)
    await connection.execute("create role plain login password 'plain'")
    await connection.execute("grant all on all tables in schema public to plain")
    await connection.execute("grant all on schema public to plain")
    await connection.execute(
        "revoke execute on function pg_terminate_backend(int, bigint) from public"
    )
    await connection.close()
    plain = postgres_database.replace("postgres@", "plain@", 1)
    assert plain != postgres_database
    await Asyncpg(plain).prepare()
    engine = Psycopg(proxy.through(plain))
    for fault in CUTS:
        proxy.heal()
        proxy.when(b"COMMIT", fault)
        assert await engine.store(fault.name, **QUICKLY) == f"stored {fault.name}"
    assert await stored(postgres_database) == (3, 3, 3)


def test_psycopg_errors_of_a_lost_commit_have_no_answer() -> None:
    """What the machine relies on: a broken connection carries no SQLSTATE of a refusal."""
    assert psycopg.OperationalError("server closed the connection unexpectedly").sqlstate is None
