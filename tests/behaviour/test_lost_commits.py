"""A connection that breaks before, during or after COMMIT: no event lost, none applied twice."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from headway import AlreadyStoredError, DuplicateEventError, OutcomeUnknownError, run_transaction
from headway.facts import CommitResolved
from headway.testing.chance import Seeded
from headway.testing.facts import Recorder
from headway.testing.proxy import Fault, Proxy
from headway.testing.servers import PostgreSQL, wait_until
from tests.behaviour.engines import KINDS, Asyncpg, Engine, Psycopg

CUTS = [Fault.CUT_BEFORE, Fault.CUT_DURING, Fault.CUT_AFTER]
cuts = pytest.mark.parametrize("fault", CUTS, ids=lambda fault: fault.name.lower())
QUICKLY: dict[str, Any] = {"min_wait": 0.001, "max_wait": 0.05}


@pytest.fixture
def proxy(postgres_server: PostgreSQL) -> Iterator[Proxy]:
    with Proxy(*postgres_server.address) as proxy:
        yield proxy


@pytest.fixture
async def database(postgres_database: str) -> str:
    await Asyncpg(postgres_database).prepare()
    return postgres_database


@pytest.fixture(params=list(KINDS))
async def engine(request: pytest.FixtureRequest, database: str, proxy: Proxy) -> Engine:
    return KINDS[request.param](proxy.through(database))


@pytest.fixture
async def impatient(database: str, proxy: Proxy) -> Asyncpg:
    """A client that finds out quickly that nothing comes back."""
    engine = Asyncpg(proxy.through(database))
    engine.timeout = 0.5
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
    assert len(recorder.of(CommitResolved)) == times
    return recorder.of(CommitResolved)


@cuts
async def test_a_cut_at_commit_is_resolved(
    engine: Engine, proxy: Proxy, database: str, fault: Fault
) -> None:
    resolved = await cut_at_every_commit(engine, proxy, database, fault, 5)
    outcomes = {fact.committed for fact in resolved}
    if fault is Fault.CUT_BEFORE:
        assert outcomes == {False}
    if fault is Fault.CUT_AFTER:
        assert outcomes == {True}


@pytest.mark.chaos
@pytest.mark.timeout(600)
@cuts
async def test_200_cuts_at_commit_are_resolved(
    engine: Engine, proxy: Proxy, database: str, fault: Fault, record_property: Any
) -> None:
    resolved = await cut_at_every_commit(engine, proxy, database, fault, 200)
    committed = sum(fact.committed is True for fact in resolved)
    record_property(
        "shown", f"200 cuts, {committed} had been committed; 200 effects, none lost, none twice"
    )


@pytest.mark.parametrize("fault", [Fault.HANG_BEFORE, Fault.HANG_AFTER], ids=lambda f: f.name)
async def test_a_commit_that_vanishes_without_a_word_is_resolved(
    impatient: Asyncpg, proxy: Proxy, database: str, fault: Fault
) -> None:
    """The network swallows it: the server holds the locks of a session that is lost to us."""
    recorder = Recorder()
    rule = proxy.when(b"COMMIT", fault)
    assert await impatient.store("a", observer=recorder, **QUICKLY) == "stored a"
    assert rule.fired == 1
    (resolved,) = recorder.of(CommitResolved)
    assert resolved.committed is (fault is Fault.HANG_AFTER)
    assert await stored(database) == (1, 1, 1)


async def test_a_statement_that_vanishes_without_a_word_does_not_block_the_next_attempt(
    impatient: Asyncpg, proxy: Proxy, database: str
) -> None:
    """The server waits inside a transaction that has written our row, for a client it lost."""
    rule = proxy.when(b"update counters", Fault.HANG_BEFORE)
    assert await impatient.store("a", **QUICKLY) == "stored a"
    assert rule.fired == 1
    assert await stored(database) == (1, 1, 1)


async def test_every_attempt_may_lose_its_connection_in_another_way(
    engine: Engine, proxy: Proxy, database: str
) -> None:
    rules = [proxy.when(b"update counters", Fault.CUT_BEFORE)]
    rules += [proxy.when(b"COMMIT", fault) for fault in CUTS]
    assert await engine.store("a", **QUICKLY) == "stored a"
    assert [rule.fired for rule in rules[:2]] == [1, 1]
    assert await stored(database) == (1, 1, 1)


async def test_an_outcome_that_cannot_be_known_is_said_to_be_unknown(
    engine: Engine, proxy: Proxy, database: str
) -> None:
    """The database stays away: nothing is guessed, and asking again with the token finds it."""
    recorder = Recorder()
    proxy.when(b"COMMIT", Fault.CUT_AFTER)
    with pytest.raises(OutcomeUnknownError) as caught:
        await engine.store("a", before=proxy.refuse, observer=recorder, **QUICKLY)
    assert caught.value.__cause__ is not None
    assert [fact.committed for fact in recorder.of(CommitResolved)] == [None]
    proxy.heal()
    with pytest.raises(AlreadyStoredError):
        await engine.store("a", token=caught.value.token, **QUICKLY)
    with pytest.raises(DuplicateEventError):
        await engine.store("a", token="another", **QUICKLY)
    assert await stored(database) == (1, 1, 1)


async def test_a_call_cancelled_during_commit_says_that_the_outcome_is_unknown(
    proxy: Proxy, database: str
) -> None:
    recorder = Recorder()
    engine = Asyncpg(proxy.through(database))
    rule = proxy.when(b"COMMIT", Fault.HANG_AFTER)
    storing = asyncio.ensure_future(engine.store("a", token="mine", observer=recorder))
    await asyncio.to_thread(wait_until, lambda: rule.fired == 1, timedelta(seconds=10))
    storing.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await storing
    assert "token='mine'" in caught.value.__notes__[0]
    assert [fact.committed for fact in recorder.of(CommitResolved)] == [None]


async def test_a_lost_commit_overtaken_by_another_caller_is_a_duplicate(
    proxy: Proxy, database: str
) -> None:
    """Ours did not get through, and before we ask, another caller stores the same operation."""
    engine, other = Asyncpg(proxy.through(database)), Psycopg(database)
    proxy.when(b"COMMIT", Fault.CUT_BEFORE)

    class Meanwhile(Recorder):
        def tell(self, fact: Any) -> None:
            super().tell(fact)
            if len(self.facts) == 1:
                other.store_now("a")

    with pytest.raises(DuplicateEventError):
        await engine.store("a", observer=Meanwhile(), **QUICKLY)
    assert await stored(database) == (1, 1, 1)


async def find(connection: Any) -> bool:
    return bool(await connection.fetchval("select 1 from effects where operation = 'a'"))


async def assert_outcome_is_unknown(connect: Callable[[], Any]) -> None:
    async def callback(connection: Any) -> None:
        await connection.execute("insert into effects values ('a', 'x')")

    with pytest.raises(OutcomeUnknownError):
        await run_transaction(connect, callback, operation_id="a", find=find)


@cuts
async def test_a_row_of_ones_own_serves_as_well(proxy: Proxy, database: str, fault: Fault) -> None:
    """With `find` no operation row is written."""
    engine = Asyncpg(proxy.through(database))
    proxy.when(b"COMMIT", fault)
    assert await engine.store("a", find=find, **QUICKLY) == "stored a"
    assert await stored(database) == (1, 1, 1)
    assert await engine.rows("select * from headway_operations") == []


async def test_find_is_not_believed_while_a_lost_session_of_another_role_may_commit(
    impatient: Asyncpg, proxy: Proxy, database: str
) -> None:
    await Asyncpg(database).execute(
        "drop role if exists clerk",
        "create role clerk",
        "grant all on all tables in schema public to clerk",
    )
    proxy.when(b"COMMIT", Fault.HANG_BEFORE)

    async def connect() -> Any:
        connection = await impatient.connect()
        await connection.execute("set role clerk")
        return connection

    await assert_outcome_is_unknown(connect)
    assert (await stored(database))[0] == 0  # it was held up for ever; run again, it might be two


async def test_behind_a_pooler_no_session_of_another_is_ended(
    impatient: Asyncpg, proxy: Proxy, database: str
) -> None:
    """A pooler gives pids of its own, which may be those of another client on the server."""
    innocent = await asyncpg.connect(database)

    class BehindPooler(asyncpg.Connection):  # type: ignore[misc]
        def get_server_pid(self) -> int:
            return int(innocent.get_server_pid())

    async def connect() -> Any:
        return await asyncpg.connect(
            impatient.url, command_timeout=0.5, connection_class=BehindPooler
        )

    proxy.when(b"COMMIT", Fault.HANG_BEFORE)
    await assert_outcome_is_unknown(connect)
    assert await innocent.fetchval("select 1") == 1
    await innocent.close()


async def test_a_crashed_server_is_waited_for() -> None:
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


async def test_a_server_that_lets_no_client_end_sessions_still_loses_nothing(
    proxy: Proxy, postgres_database: str
) -> None:
    await Asyncpg(postgres_database).execute(
        "create role plain login password 'plain'",
        "grant all on all tables in schema public to plain",
        "grant all on schema public to plain",
        "revoke execute on function pg_terminate_backend(int, bigint) from public",
    )
    plain = postgres_database.replace("postgres@", "plain@", 1)
    assert plain != postgres_database
    await Asyncpg(plain).prepare()
    engine = Psycopg(proxy.through(plain))
    for fault in CUTS:
        proxy.heal()
        proxy.when(b"COMMIT", fault)
        assert await engine.store(fault.name, **QUICKLY) == f"stored {fault.name}"
    assert await stored(postgres_database) == (3, 3, 3)
