"""Work on PostgreSQL grows with what is to be done, and not with what is stored.

Each test does the same at two sizes, a hundred times apart, and compares the rows that the server
examined, as EXPLAIN ANALYZE tells of every statement that reads.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headway.adapters.postgres.session import Session
from headway.testing.conformance.examples import MAILS, ORDERS
from headway.testing.ports import Engine, instant
from headway.testing.servers import PostgreSQL
from tests.engines.leases_in_doubt import LAPSED, RUNNING, leases_lapse, sweep_in_doubt
from tests.engines.observers.scraping import scraped
from tests.engines.pairs.postgres_harness import PostgresHarness, connected, emptied, made_ready

pytestmark = pytest.mark.server("postgresql")

SMALL, LARGE = 100, 10_000

DONE = """
insert into headway_done (key, operation, queue, generation, ended, at, failed_queue)
select 'done ' || i, 'done ' || i, 'q', '0', 'done', now(), '' from generate_series(1, $1::int) i
"""
MOVED = """
insert into headway_documents
select 'messages', 'moved ' || i, jsonb_build_object(
    '_id', 'moved ' || i, 'status', 'pending', 'attemptCount', 1, 'lastAttemptTime', $2::text
) from generate_series(1, $1::int) i
"""
NUMBERED = """
insert into headway_documents
select 'messages', lpad(i::text, 6, '0'), jsonb_build_object(
    '_id', lpad(i::text, 6, '0'), 'number', i, 'third', i % 3 = 0
) from generate_series(1, $1::int) i
"""


class Examined:
    """Statements that read, as they were run, and the rows that the server examined for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        self.given = 0
        fetch = Session.fetch

        async def counted(session: Any, statement: str, *values: Any, **options: Any) -> Any:
            if statement.lstrip().startswith("select"):
                explained = f"explain (analyze, format json) {statement}"
                (row,) = await fetch(session, explained, *values)
                self.rows += _rows(json.loads(row[0])[0]["Plan"])
            found = await fetch(session, statement, *values, **options)
            self.given += len(found)
            return found

        monkeypatch.setattr(Session, "fetch", counted)


def _rows(node: dict[str, Any]) -> int:
    """Sum up what was read from tables and indexes."""
    inner = sum(map(_rows, node.get("Plans", ())))
    if "Scan" not in node["Node Type"]:
        return inner
    kinds = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    each = sum(node.get(kind, 0) for kind in kinds)
    return inner + int(each * node["Actual Loops"])


@pytest.fixture(scope="module")
def database(postgres_server: PostgreSQL) -> str:
    url = postgres_server.create_database()
    asyncio.run(made_ready(url))
    return url


@pytest.fixture
async def harness(database: str) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(database)
    yield harness
    await harness.close()


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> Examined:
    return Examined(monkeypatch)


async def holding(harness: PostgresHarness, statement: str, *values: Any) -> Engine:
    await emptied(harness.url)
    engine = await harness.open_engine()
    await engine.open([ORDERS, MAILS])
    async with connected(harness.url) as connection:
        await connection.execute(statement, *values)
        await connection.execute("analyze")
    return engine


async def test_a_scrape_does_not_ask_the_store_what_is_done(
    harness: PostgresHarness, examined: Examined
) -> None:
    costs = []
    for many in (SMALL, LARGE):
        engine = await holding(harness, DONE, many)
        before = examined.rows
        await scraped(engine)
        costs.append(examined.rows - before)
        assert (await engine.places.balance()).done == many
    assert costs[1] <= 2 * costs[0]


async def test_a_scrape_says_when_the_store_is_unavailable(harness: PostgresHarness) -> None:
    engine = await holding(harness, DONE, SMALL)
    async with connected(harness.url) as connection:
        await connection.execute("alter table headway_forgotten rename to gone")
        try:
            assert "headway_engine_up 0.0" in await scraped(engine, up=False)
        finally:
            await connection.execute("alter table gone rename to headway_forgotten")


async def test_a_sweep_that_doubts_leases_reads_leased_documents_alone(
    harness: PostgresHarness, examined: Examined
) -> None:
    costs = []
    for many in (SMALL, LARGE):
        moved = instant(harness.clock.now())
        engine = await holding(harness, MOVED, many, moved)
        await leases_lapse(engine, harness.clock)
        await sweep_in_doubt(engine, harness.clock)  # makes the indexes
        async with connected(harness.url) as connection:
            await connection.execute("analyze")
        before = examined.rows
        doubted = await sweep_in_doubt(engine, harness.clock)
        assert (doubted.over, doubted.leased) == (LAPSED, RUNNING)
        costs.append(examined.rows - before)
    assert costs[1] <= 2 * costs[0]


@pytest.mark.parametrize(
    ("where", "matching"), [({"number": 7}, 1), ({"number": 7.0}, 1), ({"third": True}, 33)]
)
async def test_documents_are_filtered_by_the_server(
    harness: PostgresHarness, examined: Examined, where: dict[str, Any], matching: int
) -> None:
    """Every document of the collection is examined, and those that match are given."""
    engine = await holding(harness, NUMBERED, SMALL)
    rows, given = examined.rows, examined.given
    found = await engine.documents.find("messages", where, 1_000)
    assert len(found) == matching
    assert (examined.rows - rows, examined.given - given) == (SMALL, matching)
