"""When the database refuses or goes away: the answer is true, and nothing is half-written."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from headway.testing.proxy import Fault, Proxy
from headway.testing.servers import PostgreSQL
from headway.testing.servers.loopback import free_port
from tests.systems.ledger.ledgers import EVENTS, Ledger, a_ledger, an_event, connect


@contextlib.contextmanager
def another_writer(database: str) -> Iterator[None]:
    """Hold SQLite's write lock, as a long transaction of another program does."""
    with contextlib.closing(connect(database)) as connection:
        connection.execute("begin immediate")
        yield


@pytest.mark.parametrize("status", [500, 503])
async def test_exhausted_retries_say_that_nothing_was_stored(
    sqlite_database: str, status: int
) -> None:
    async with a_ledger(sqlite_database, retry_attempts=2, exhausted_status=status) as ledger:
        with another_writer(sqlite_database):
            answer = await ledger.send(an_event())
        assert answer.status_code == status
        assert answer.headers["retry-after"] == "1"
        body = answer.json()
        assert (body["error"], body["event_id"], body["stored"]) == ("exhausted", "event-1", False)
        assert await ledger.is_empty()
        call = {"call": "store_event", "error_type": "OC000_TRANSACTION_CONFLICT"}
        assert await ledger.sample("headway_retries_total", **call) == 1
        given_up = {**call, "reason": "max_attempts_exceeded"}
        assert await ledger.sample("headway_gave_up_total", **given_up) == 1
        assert (await ledger.send(an_event())).status_code == 201


async def test_a_conflict_that_passes_is_not_seen_by_the_sender(sqlite_database: str) -> None:
    async with a_ledger(sqlite_database) as ledger:
        with contextlib.closing(connect(sqlite_database)) as connection:
            connection.execute("begin immediate")
            sending = asyncio.create_task(ledger.send(an_event()))
            call = {"call": "store_event", "error_type": "OC000_TRANSACTION_CONFLICT"}
            while not await ledger.sample("headway_retries_total", **call):  # noqa: ASYNC110 (only the metrics tell)
                await asyncio.sleep(0.01)
            connection.rollback()
            answer = await sending
        assert (answer.status_code, answer.json()["already"]) == (201, False)
        assert (await ledger.entity("loan-1"))["payments"] == 1
        assert await ledger.sample("headway_recovered_total", call="store_event") == 1


FAILING_WRITE = {
    "sqlite": """
        create trigger fail before insert on ledger_entities
        begin select raise(abort, 'no entity today'); end
    """,
    "postgresql": """
        alter table ledger_entities add constraint "no entity today" check (moved_cents < 0)
    """,
}


async def test_a_failure_in_the_middle_leaves_nothing(ledger: Ledger) -> None:
    await ledger.rows(FAILING_WRITE[ledger.database.partition(":")[0]])
    answer = await ledger.send(an_event())
    assert answer.status_code == 500
    assert "retry-after" not in answer.headers
    body = answer.json()
    assert (body["error"], body["stored"]) == ("failed", False)
    assert "no entity today" not in answer.text
    assert len(body["transaction_id"]) == 32
    assert await ledger.is_empty()
    kind = "LoanPaymentSubmitted"
    assert await ledger.sample("ledger_events_total", event_type=kind, outcome="failed") == 1


@pytest.fixture
def proxy(postgres_server: PostgreSQL) -> Iterator[Proxy]:
    with Proxy(*postgres_server.address) as proxy:
        yield proxy


async def test_a_database_that_is_away_may_be_asked_again(
    postgres_database: str, proxy: Proxy
) -> None:
    through = proxy.through(postgres_database)
    async with a_ledger(through, behind=postgres_database, retry_attempts=2) as ledger:
        proxy.refuse()
        answer = await ledger.send(an_event())
        assert (answer.status_code, answer.json()["error"]) == (500, "unreachable")
        assert answer.headers["retry-after"] == "1"
        health = await ledger.http.get("/health")
        assert health.status_code == 503
        totals = await ledger.http.get("/api/v1/totals")
        assert (totals.status_code, totals.headers["retry-after"]) == (500, "1")
        proxy.heal()
        assert (await ledger.send(an_event())).status_code == 201


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_DURING, Fault.CUT_AFTER])
async def test_a_commit_whose_answer_was_lost_is_stored_once(
    postgres_database: str, proxy: Proxy, fault: Fault
) -> None:
    through = proxy.through(postgres_database)
    async with a_ledger(through, behind=postgres_database) as ledger:
        rule = proxy.when(b"COMMIT", fault)
        answer = await ledger.send(an_event())
        assert rule.fired == 1
        assert (answer.status_code, answer.json()["already"]) == (201, False)
        assert (await ledger.entity("loan-1"))["payments"] == 1


async def test_an_unknown_outcome_is_called_unknown_and_found_out_by_the_key(
    postgres_database: str, proxy: Proxy
) -> None:
    through = proxy.through(postgres_database)
    async with a_ledger(through, behind=postgres_database, retry_attempts=1) as ledger:
        proxy.when(b"COMMIT", Fault.CUT_AFTER)
        answer = await ledger.send(an_event())
        assert (answer.status_code, answer.headers["retry-after"]) == (500, "1")
        body = answer.json()
        assert (body["error"], body["stored"]) == ("outcome_unknown", None)
        kind = "LoanPaymentSubmitted"
        assert await ledger.sample("ledger_events_total", event_type=kind, outcome="unknown") == 1
        # The sender gave no key; the answer names the one that makes the write its own.
        again = await ledger.send(an_event(), key=body["idempotency_key"])
        assert (again.status_code, again.json()["already"]) == (201, True)
        assert (await ledger.entity("loan-1"))["payments"] == 1


async def test_too_many_connections_may_be_asked_again(postgres_server: PostgreSQL) -> None:
    url = postgres_server.create_database()
    async with a_ledger(url) as ledger:
        name = url.rpartition("/")[2]
        await ledger.rows("create role guest login connection limit 0")
        await ledger.rows(f"alter database {name} owner to guest")
        guest = url.replace("postgres@", "guest@")
        async with a_ledger(guest, behind=url) as refused:
            answer = await refused.send(an_event())
            assert (answer.status_code, answer.json()["error"]) == (500, "overloaded")
            assert answer.headers["retry-after"] == "1"


async def test_no_password_is_ever_told(
    postgres_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    closed = f"postgresql://someone:s3cret@127.0.0.1:{free_port()}/nothing?password=s3cret"
    async with a_ledger(closed, behind=postgres_database, retry_attempts=1) as ledger:
        answers = [
            await ledger.send(an_event()),
            await ledger.http.get("/health"),
            await ledger.http.get(EVENTS),
            await ledger.http.get("/docs"),
        ]
        assert [answer.status_code for answer in answers] == [500, 503, 500, 200]
    assert "s3cret" not in "".join(answer.text for answer in answers)
    assert caplog.records
    assert "s3cret" not in caplog.text
