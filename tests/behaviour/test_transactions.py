"""What run_transaction promises on every driver, on real databases."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from headway import (
    AlreadyStoredError,
    ConfigurationError,
    DuplicateEventError,
    create_operations_table,
    run_transaction,
)
from headway.errors import TransactionEndedError, TransactionRolledBackError
from headway.facts import GaveUp, Recovered, RetryScheduled
from headway.retrying import Reason
from headway.testing.chance import Fixed
from headway.testing.clock import VirtualClock
from headway.testing.facts import Recorder
from tests.behaviour.engines import Asyncpg, Engine, Psycopg, PsycopgAsync, Sqlite

ENGINES = ["asyncpg", "psycopg", "psycopg-async", "sqlite"]


@pytest.fixture(params=ENGINES)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    engine: Engine
    if request.param == "sqlite":
        engine = Sqlite(str(tmp_path / "test.db"))
    else:
        url = request.getfixturevalue("postgres_database")
        kinds: dict[str, Callable[[str], Engine]] = {
            "asyncpg": Asyncpg,
            "psycopg": Psycopg,
            "psycopg-async": PsycopgAsync,
        }
        engine = kinds[request.param](url)
    await engine.prepare()
    return engine


async def effects(engine: Engine) -> list[str]:
    return [row[0] for row in await engine.rows("select operation from effects order by 1")]


async def total(engine: Engine) -> int:
    return int((await engine.rows("select total from counters"))[0][0])


async def test_a_transaction_is_stored_and_its_answer_given(engine: Engine) -> None:
    assert await engine.store("a") == "stored a"
    assert await effects(engine) == ["a"]
    assert await total(engine) == 1


async def test_an_error_in_the_body_leaves_nothing_behind(engine: Engine) -> None:
    def fail() -> None:
        raise LookupError("no such car")

    with pytest.raises(LookupError, match="no such car"):
        await engine.store("a", before=fail)
    assert await effects(engine) == []
    assert await engine.rows("select * from headway_operations") == []


async def test_somebody_elses_operation_is_a_duplicate(engine: Engine) -> None:
    await engine.store("a")
    with pytest.raises(
        DuplicateEventError, match="'a' was stored before by another call"
    ) as caught:
        await engine.store("a")
    assert caught.value.operation_id == "a"
    assert await total(engine) == 1


async def test_our_own_operation_of_an_earlier_call_is_no_duplicate(engine: Engine) -> None:
    recorder = Recorder()
    assert await engine.store("a", token="mine") == "stored a"
    with pytest.raises(AlreadyStoredError, match="'a' was stored by an earlier call"):
        await engine.store("a", token="mine", observer=recorder)
    assert recorder.facts == []
    assert await total(engine) == 1


async def test_a_conflict_is_retried_on_a_fresh_connection(engine: Engine) -> None:
    clock, recorder, failures = VirtualClock(), Recorder(), iter([1, 2])

    def conflict() -> None:
        if next(failures, None):
            raise RuntimeError("change conflicts with another transaction, please retry: (OC000)")

    answer = await engine.store(
        "a", before=conflict, clock=clock, observer=recorder, chance=Fixed(0.5)
    )
    assert answer == "stored a"
    assert await effects(engine) == ["a"]
    assert [fact.delay.total_seconds() for fact in recorder.of(RetryScheduled)] == [0.15, 0.25]
    assert [fact.attempts for fact in recorder.of(Recovered)] == [3]


async def test_attempts_end_and_the_last_error_is_raised(engine: Engine) -> None:
    clock, recorder = VirtualClock(), Recorder()

    def conflict() -> None:
        raise RuntimeError("mutation conflicts with another transaction, retry as needed (OC000)")

    with pytest.raises(RuntimeError, match="mutation conflicts"):
        await engine.store("a", before=conflict, clock=clock, observer=recorder, stop_after=3)
    (gave_up,) = recorder.of(GaveUp)
    assert gave_up.reason is Reason.MAX_ATTEMPTS_EXCEEDED
    assert gave_up.failure.attempt == 3
    assert await effects(engine) == []


async def test_the_transaction_id_is_one_for_all_attempts(engine: Engine) -> None:
    clock, recorder, failures = VirtualClock(), Recorder(), iter([1, 2])

    def conflict() -> None:
        if next(failures, None):
            raise RuntimeError("(OC000)")

    await engine.store(
        "a", before=conflict, clock=clock, observer=recorder, context={"event_id": "e-1"}
    )
    contexts = [fact.context for fact in recorder.of(RetryScheduled)]
    assert contexts[0] == contexts[1]
    assert contexts[0]["event_id"] == "e-1"
    stored = await engine.rows("select token from headway_operations")
    assert stored == [(contexts[0]["transaction_id"],)]


async def test_a_missing_operations_table_names_the_cure(engine: Engine) -> None:
    if isinstance(engine, Sqlite):
        connection = engine.connect()
        connection.execute("drop table headway_operations")
        connection.close()
    else:
        connection = await asyncpg.connect(engine.url)
        await connection.execute("drop table headway_operations")
        await connection.close()
    with pytest.raises(Exception, match="headway_operations") as caught:
        await engine.store("a")
    assert "headway.create_operations_table(connect)" in "".join(caught.value.__notes__)


async def test_parallel_transactions_on_one_row_all_end_well(engine: Engine) -> None:
    options: dict[str, Any] = {"stop_after": 40, "min_wait": 0.002, "max_wait": 0.2}
    if not isinstance(engine, Sqlite):
        options["isolation"] = "serializable"
    await asyncio.gather(*(engine.store(f"op-{n}", **options) for n in range(12)))
    assert await effects(engine) == sorted(f"op-{n}" for n in range(12))
    assert await total(engine) == 12


async def test_the_same_operation_in_parallel_is_stored_once(engine: Engine) -> None:
    options: dict[str, Any] = {"stop_after": 40, "min_wait": 0.002, "max_wait": 0.2}
    ends = await asyncio.gather(
        *(engine.store("same", **options) for _ in range(8)), return_exceptions=True
    )
    assert ends.count("stored same") == 1
    assert sum(isinstance(end, DuplicateEventError) for end in ends) == 7
    assert await total(engine) == 1


async def test_asyncpg_and_psycopg_bodies_may_nest_transactions(postgres_database: str) -> None:
    await Asyncpg(postgres_database).prepare()

    async def by_asyncpg(connection: Any) -> None:
        async with connection.transaction():
            await connection.execute("insert into effects values ('asyncpg', 'x')")

    def by_psycopg(connection: psycopg.Connection) -> None:
        with connection.transaction():
            connection.execute("insert into effects values ('psycopg', 'x')")

    await run_transaction(
        lambda: asyncpg.connect(postgres_database), by_asyncpg, operation_id="one"
    )
    run_transaction(lambda: psycopg.connect(postgres_database), by_psycopg, operation_id="two")
    assert await effects(Asyncpg(postgres_database)) == ["asyncpg", "psycopg"]


async def test_an_error_swallowed_by_the_body_is_not_taken_for_success(
    postgres_database: str,
) -> None:
    await Asyncpg(postgres_database).prepare()

    async def by_asyncpg(connection: Any) -> None:
        await connection.execute("insert into effects values ('lost', 'x')")
        with contextlib.suppress(asyncpg.PostgresError):
            await connection.execute("insert into nowhere values (1)")

    def by_psycopg(connection: psycopg.Connection) -> None:
        connection.execute("insert into effects values ('lost', 'x')")
        with contextlib.suppress(psycopg.Error):
            connection.execute("insert into nowhere values (1)")

    with pytest.raises(TransactionRolledBackError, match="swallowed"):
        await run_transaction(
            lambda: asyncpg.connect(postgres_database), by_asyncpg, operation_id="one"
        )
    with pytest.raises(TransactionRolledBackError, match="let the error leave the body"):
        run_transaction(lambda: psycopg.connect(postgres_database), by_psycopg, operation_id="two")
    assert await effects(Asyncpg(postgres_database)) == []


async def test_a_failure_raised_by_a_deferred_trigger_is_an_answer(postgres_database: str) -> None:
    """COMMIT itself may be refused by the database: nothing is in doubt then."""
    engine, recorder = Asyncpg(postgres_database), Recorder()
    await engine.prepare()
    connection = await asyncpg.connect(postgres_database)
    await connection.execute(
        """
        create function refuse() returns trigger language plpgsql as
            $$ begin raise exception 'books are closed' using errcode = 'P0001'; end $$;
        create constraint trigger refuse after insert on effects
            deferrable initially deferred for each row execute function refuse();
        """
    )
    await connection.close()
    with pytest.raises(asyncpg.RaiseError, match="books are closed"):
        await engine.store("a", observer=recorder)
    assert [fact.reason for fact in recorder.of(GaveUp)] == [Reason.NON_RETRYABLE]
    assert await effects(engine) == []


def test_a_plain_body_on_an_async_connection_is_refused(postgres_database: str) -> None:
    def body(connection: Any) -> None:
        raise AssertionError("must not run")

    with pytest.raises(ConfigurationError, match="write the body as 'async def'"):
        run_transaction(lambda: asyncpg.connect(postgres_database), body, operation_id="a")


def test_an_unknown_kind_of_connection_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"connect gave a builtins\.object"):
        run_transaction(object, lambda _connection: None, operation_id="a")


@pytest.mark.parametrize("given", ["", 7, None])
def test_an_operation_id_that_is_no_text_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"operation_id={given!r} is not accepted"):
        run_transaction(
            lambda: sqlite3.connect(":memory:"), lambda _connection: None, operation_id=given
        )


@pytest.mark.parametrize("given", ["test.db", sqlite3.connect(":memory:")])
def test_a_connection_in_place_of_connect_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="give a function that opens a connection"):
        run_transaction(given, lambda _connection: None, operation_id="a")


async def test_an_unknown_isolation_is_refused_with_those_there_are(engine: Engine) -> None:
    known = "immediate" if isinstance(engine, Sqlite) else "repeatable_read"
    with pytest.raises(ConfigurationError, match=f"isolation='solid' is not accepted.*{known}"):
        await engine.store("a", isolation="solid")


async def test_a_body_that_commits_by_itself_is_told_so(
    tmp_path: Path, postgres_database: str
) -> None:
    await Asyncpg(postgres_database).prepare()
    sqlite = Sqlite(str(tmp_path / "test.db"))
    await sqlite.prepare()

    async def by_asyncpg(connection: Any) -> None:
        await connection.execute("commit")

    def by_hand(connection: Any) -> None:
        connection.execute("commit")

    with pytest.raises(TransactionEndedError, match="leave both to run_transaction"):
        await run_transaction(
            lambda: asyncpg.connect(postgres_database), by_asyncpg, operation_id="one"
        )
    with pytest.raises(TransactionEndedError):
        run_transaction(lambda: psycopg.connect(postgres_database), by_hand, operation_id="two")
    with pytest.raises(TransactionEndedError):
        run_transaction(sqlite.connect, by_hand, operation_id="three")


def test_every_connection_is_closed(tmp_path: Path) -> None:
    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(tmp_path / "test.db")
        opened.append(connection)
        return connection

    def body(connection: sqlite3.Connection) -> None:
        if len(opened) < 4:
            raise RuntimeError("(OC001)")

    create_operations_table(connect)
    run_transaction(connect, body, operation_id="a", clock=VirtualClock())
    assert len(opened) == 4
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("select 1")


async def test_a_cancelled_transaction_closes_its_connection(postgres_database: str) -> None:
    engine = Asyncpg(postgres_database)
    await engine.prepare()
    begun = asyncio.Event()

    async def body(connection: Any) -> None:
        await connection.execute("insert into effects values ('cancelled', 'x')")
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run_transaction(engine.connect, body, operation_id="a"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await effects(engine) == []
    assert await engine.store("a") == "stored a"


async def test_a_duplicate_is_an_answer_and_no_failure(engine: Engine) -> None:
    recorder = Recorder()
    await engine.store("a")
    with pytest.raises(DuplicateEventError):
        await engine.store("a", observer=recorder)
    assert recorder.facts == []


async def test_an_expected_refusal_rolls_back_and_is_no_failure(engine: Engine) -> None:
    recorder = Recorder()

    def refuse() -> None:
        raise LookupError("not on Sundays")

    with pytest.raises(LookupError):
        await engine.store("a", before=refuse, expected=LookupError, observer=recorder)
    assert recorder.facts == []
    assert await effects(engine) == []
    assert await engine.store("a") == "stored a"


def test_a_connection_that_does_not_close_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Sticky(sqlite3.Connection):
        def close(self) -> None:
            super().close()
            raise ConnectionError("will not go")

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "test.db", factory=Sticky)

    create_operations_table(lambda: sqlite3.connect(tmp_path / "test.db"))
    recorder = Recorder()
    assert run_transaction(connect, lambda _: "done", operation_id="a", observer=recorder) == "done"
    assert recorder.facts == []
    assert "Could not close a connection of " in caplog.text


async def test_many_may_make_the_operations_table_at_once(postgres_database: str) -> None:
    connect = {
        "asyncpg": lambda: asyncpg.connect(postgres_database),
        "psycopg": lambda: psycopg.AsyncConnection.connect(postgres_database),
    }
    for _ in range(5):
        await asyncio.gather(*(create_operations_table(connect[n]) for n in [*connect] * 10))
        connection = await asyncpg.connect(postgres_database)
        await connection.execute("drop table headway_operations")
        await connection.close()
