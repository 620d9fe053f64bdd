"""What PostgreSQL examines, as EXPLAIN ANALYZE tells of every statement that reads."""

import json
from collections.abc import Awaitable
from typing import Any

import pytest

from headway.adapters.postgres.session import Session
from headway.testing.conformance.examples import MAILS, ORDERS
from headway.testing.ports import Engine, instant
from tests.engines.pairs.postgres_harness import PostgresHarness, connected, emptied
from tests.engines.store_costs import Site, StoreCosts, T, scraped

pytestmark = pytest.mark.server("postgresql")

DONE = """
insert into headway_done (key, operation, queue, generation, ended, at, failed_queue)
select 'done ' || i, 'done ' || i, 'q', '0', 'done', now(), '' from generate_series(1, $1::int) i
"""
MOVED = """
insert into headway_documents
select 'messages', 'moved ' || i, jsonb_build_object(
    '_id', 'moved ' || i, 'number', i, 'attemptCount', 1, 'lastAttemptTime', $2::text,
    'status', case when i % 2 = 0 then 'processed' else 'pending' end, 'embedded', i % 2 = 0
) from generate_series(1, $1::int) i
"""


class Examined(Site):
    """Explains each statement that reads before it is run."""

    def __init__(self, harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = harness.clock
        self.analyzes = True
        self._harness = harness
        self._rows = self._given = 0
        fetch = Session.fetch

        async def counted(session: Any, statement: str, *values: Any, **options: Any) -> Any:
            if statement.lstrip().startswith("select"):
                explained = f"explain (analyze, format json) {statement}"
                (row,) = await fetch(session, explained, *values)
                self._rows += _rows(json.loads(row[0])[0]["Plan"])
            found = await fetch(session, statement, *values, **options)
            self._given += len(found)
            return found

        monkeypatch.setattr(Session, "fetch", counted)

    async def opened(self) -> Engine:
        await emptied(self._harness.url)
        engine = await self._harness.open_engine()
        await engine.open([ORDERS, MAILS])
        return engine

    async def fill_done(self, many: int) -> None:
        await self._execute(DONE, many)

    async def fill_moved(self, many: int) -> None:
        await self._execute(MOVED, many, instant(self.clock.now()))

    async def _execute(self, statement: str, *values: Any) -> None:
        async with connected(self._harness.url) as connection:
            await connection.execute(statement, *values)

    async def examined(self, work: Awaitable[T]) -> tuple[int, int, T]:
        if self.analyzes:
            await self._execute("analyze")
        rows, given = self._rows, self._given
        answer = await work
        return self._rows - rows, self._given - given, answer


def _rows(node: dict[str, Any]) -> int:
    """Sum up what was read from tables and indexes."""
    inner = sum(map(_rows, node.get("Plans", ())))
    if "Scan" not in node["Node Type"]:
        return inner
    kinds = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    each = sum(node.get(kind, 0) for kind in kinds)
    return inner + int(each * node["Actual Loops"])


@pytest.fixture
def site(harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch) -> Examined:
    return Examined(harness, monkeypatch)


class TestCosts(StoreCosts):
    async def test_a_view_is_read_by_its_indexes_before_anything_was_analyzed(
        self, site: Examined
    ) -> None:
        site.analyzes = False
        await self.test_a_view_of_stuck_documents_costs_what_is_in_it(site, None)


async def test_a_scrape_says_when_the_store_is_unavailable(site: Examined) -> None:
    engine = await site.opened()
    await site._execute("alter table headway_forgotten rename to gone")
    try:
        await scraped(engine, up=False)
    finally:
        await site._execute("alter table gone rename to headway_forgotten")
