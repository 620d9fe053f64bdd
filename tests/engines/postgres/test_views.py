"""The views of a sweeper on PostgreSQL: read by their own indexes, which are made in peace."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from headway import Lifecycle
from headway.adapters.postgres import candidates, document_rows, documents, preparing, selecting
from headway.adapters.postgres.candidates import IN_ORDER
from headway.adapters.postgres.link import BEGIN, Link
from headway.adapters.postgres.views import Index, given_up_id, indexes, question
from headway.testing.conformance.examples import opened, wrote
from headway.testing.conformance.stuck import (
    RULE,
    claim_of,
    old,
    scanned,
    seen,
    stuck,
    sweeping,
    whole_second,
)
from headway.testing.ports import InsertNew, SweepRule, View, instant
from tests.engines.pairs.postgres_harness import PostgresHarness, connected

pytestmark = pytest.mark.server("postgresql")

FLAGGED = SweepRule(lifecycle=Lifecycle("chunks", flag="embedded"))
PROCESSED = """
insert into headway_documents
select c, n::text, jsonb_build_object('_id', n::text, 'status', 'processed', 'embedded', true)
from generate_series(1, 5000) as n, unnest(array['docs', 'chunks']) as c
"""
IN_HAND = """
insert into headway_documents
select c, 'in hand ' || n, jsonb_build_object('_id', 'in hand ' || n, 'lastAttemptTime', $1::text)
from generate_series(1, 1000) as n, unnest(array['docs', 'chunks']) as c
"""


@pytest.fixture
async def harness(postgres_database: str) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(postgres_database)
    yield harness
    await harness.close()


async def plan(connection: Any, statement: str, *values: Any) -> dict[str, Any]:
    """Give the plan of a statement and what came of it, all of its nodes in one list."""
    (row,) = await connection.fetch(f"explain (analyze, format json) {statement}", *values)
    whole = json.loads(row[0])[0]["Plan"]
    nodes: list[dict[str, Any]] = [whole]
    for node in nodes:
        nodes.extend(node.get("Plans", ()))
    read = [node for node in nodes if node.get("Relation Name") == "headway_documents"]
    return {"read": read, "kinds": [node["Node Type"] for node in nodes]}


@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize("rule", [RULE, FLAGGED], ids=["status", "flag"])
async def test_a_view_is_read_without_what_is_not_in_it(
    harness: PostgresHarness, rule: SweepRule, *, analyzed: bool
) -> None:
    now = whole_second(harness)
    engine = await opened(harness)
    finder = sweeping(engine).candidates
    await finder.prepare([rule])
    ends = {"leaseUntil": instant(now), "claimUntil": instant(now)}
    few: dict[str, dict[str, Any]] = {
        "failed": {"status": "failed"},
        "unmoved": {},
        "ahead": {"lastAttemptTime": "3000-01-01T00:00:00Z"},
        "lease over": {"leaseToken": "t", "lastAttemptTime": instant(now), **ends},
        "claim over": {"claimToken": "t", "lastAttemptTime": instant(now), **ends},
        "given up": {"status": "failed_max_retries"},
        **{
            f"{one} {version}": {
                "status": "failed", "permanentFailure": {"rule": by, "version": version}
            }
            for one, by in (("declined", "shop.declined"), ("bug", "python.programming"))
            for version in ("1", "2", "3")
        },
    }  # fmt: skip
    rule = replace(rule, version="2")
    documents = [old(now, name, **fields) for name, fields in few.items()]
    await wrote(harness, engine, *(InsertNew(rule.collection, each) for each in documents))
    async with connected(harness.url) as connection:
        await connection.execute(PROCESSED)
        await connection.execute(IN_HAND, instant(now - timedelta(hours=1)))
        if analyzed:
            await connection.execute("analyze headway_documents")
        await connection.execute(f"{BEGIN}; {IN_ORDER}")
        for view in View:
            asked = question(rule, view, now)
            values = asked.old, asked.farthest, 100
            for within in asked.ranges:
                for newest_first in (False, True):
                    by_version = view in {View.OUTDATED, View.PERMANENT}
                    last = "v0" if by_version else now - timedelta(days=9)
                    for after in ((), (last, "x")):
                        statement = asked.page(
                            within, newest_first=newest_first, follows=bool(after)
                        )
                        await looked_up(connection, statement, *values, *after)
        given_up = given_up_id(rule.lifecycle)
        await looked_up(
            connection,
            f"select id from headway_documents where {given_up} is not null and {given_up} > $1 "
            f"order by {given_up} limit 5",
            "",
        )
        await connection.execute("rollback")
    expected = {
        View.FAILED: ["failed"],
        View.OUTDATED: ["bug 1", "bug 3"],
        View.PERMANENT: ["bug 2", "declined 1", "declined 2", "declined 3"],
        View.UNMOVED: ["ahead", "unmoved"],
        View.LEASE_OVER: ["lease over"],
        View.CLAIM_OVER: ["claim over"],
    }
    for view, ids in expected.items():
        assert await seen(finder, view, now, rule) == ids
    tally = await finder.tally(rule, now)
    assert (tally.stuck, tally.given_up, tally.permanent) == (7, 1, 4)


async def looked_up(connection: Any, statement: str, *values: Any) -> None:
    """See that a statement reads its own index alone, and in its order."""
    found = await plan(connection, statement, *values)
    (node,) = found["read"]
    assert node["Node Type"] in {"Index Scan", "Index Only Scan"}, statement
    assert node["Index Name"].startswith("headway_view_"), statement
    assert not {"Seq Scan", "Sort", "Incremental Sort", "Bitmap Heap Scan"} & set(found["kinds"])
    assert node.get("Rows Removed by Filter", 0) == 0, statement


async def test_documents_are_locked_in_the_order_of_their_ids(harness: PostgresHarness) -> None:
    """Else two who change the same ones could wait for each other."""
    await harness.store().open()
    ids = [f"{n}" for n in range(1, 4_000)]
    was = json.dumps({one: {"status": "processed"} for one in ids})
    now = "jsonb_build_object('status', body -> 'status')"
    async with connected(harness.url) as connection:
        await connection.execute(PROCESSED)
        await connection.execute(BEGIN)
        for statement, *values in (
            (document_rows._LOCK, "docs", ids),
            (document_rows._CHANGE, "docs", ids, was),
            (document_rows._LOCK_FREE, "docs", ids),
            (documents._CHANGE, "docs", ids, "{}", "{}"),
            (candidates._PUBLISHED, "docs", ids, "t", "{}"),
            (selecting._DELETE, "docs", ids),
            (f"{selecting._DELETE} and {now} = $3::jsonb -> id", "docs", ids, was),
        ):
            (node,) = (await plan(connection, statement, *values))["read"][-1:]
            assert node["Node Type"] == "Index Scan", statement
            assert node["Index Name"] == "headway_documents_pkey", statement


async def test_indexes_are_made_while_others_write(harness: PostgresHarness) -> None:
    now = whole_second(harness)
    engine = await opened(harness)
    finder = sweeping(engine).candidates
    written: list[str] = []

    async def write() -> None:
        while len(written) < 5 or not made.done():
            await wrote(harness, engine, InsertNew("docs", old(now, f"{len(written):04}")))
            written.append(f"{len(written):04}")

    made = asyncio.create_task(finder.prepare([RULE, FLAGGED]))
    await write()
    await made
    assert await seen(finder, View.UNMOVED, now) == written


async def valid(harness: PostgresHarness, names: Sequence[str]) -> dict[str, bool]:
    async with connected(harness.url) as connection:
        rows = await connection.fetch(
            "select c.relname, i.indisvalid from pg_index i "
            "join pg_class c on c.oid = i.indexrelid where c.relname = any($1::text[])",
            list(names),
        )
    return dict(rows)


async def test_an_index_that_came_to_no_end_is_made_again(harness: PostgresHarness) -> None:
    now = whole_second(harness)
    _, finder = await stuck(harness, old(now))
    names = [index.name for index in indexes(RULE.lifecycle)]
    assert await valid(harness, names) == dict.fromkeys(names, True)
    async with connected(harness.url) as connection:
        await connection.execute(
            "update pg_index set indisvalid = false from pg_class c "
            f"where c.oid = indexrelid and c.relname = '{names[1]}'"
        )
        await connection.execute(f"drop index {names[2]}")
    assert await valid(harness, names) == {
        name: name != names[1] for name in names if name != names[2]
    }
    await finder.prepare([RULE])
    assert await valid(harness, names) == dict.fromkeys(names, True)
    assert await seen(finder, View.UNMOVED, now) == ["1"]


async def test_an_index_does_not_wait_for_ever_for_an_old_transaction(
    harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "_PATIENCE_SECONDS", 1)
    now = whole_second(harness)
    rule = SweepRule(lifecycle=Lifecycle("late", flag="never_seen_before"))
    engine = await opened(harness)
    await wrote(harness, engine, InsertNew("late", old(now)))
    finder = sweeping(engine).candidates
    async with connected(harness.url) as report:
        await report.execute("set application_name = 'monthly report'")
        await report.execute("begin isolation level repeatable read")
        await report.fetch("select id from headway_documents")
        pid = report.get_server_pid()
        for _ in range(2):  # the second one meets what the first has left behind
            async with asyncio.timeout(15):
                with pytest.raises(TimeoutError) as caught:
                    await finder.prepare([rule])
            said = str(caught.value)
            assert "the sweep of late could not be made: for 1 s it waited for" in said
            assert f"{pid} (monthly report, open since " in said
            assert "pg_terminate_backend" in said
    await finder.prepare([rule])
    names = [index.name for index in indexes(rule.lifecycle)]
    assert await valid(harness, names) == dict.fromkeys(names, True)
    async with connected(harness.url) as connection:
        await connection.execute(f"drop index {', '.join(names)}")


async def test_the_limits_of_an_index_stay_with_it(harness: PostgresHarness) -> None:
    await harness.store().open()
    link = Link(harness.url, connections=1)
    await link.outside("create index concurrently own_index on headway_notes (at)", 10.0, 7)
    rows = await link.fetch(
        "select current_setting('lock_timeout'), current_setting('statement_timeout')"
    )
    assert tuple(rows[0]) == ("0", "0")
    with pytest.raises(asyncpg.DuplicateTableError):
        await link.outside("create index concurrently own_index on headway_notes (at)", 10.0, 7)
    rows = await link.fetch("select current_setting('lock_timeout')")
    assert rows[0][0] == "0"
    await link.outside("drop index concurrently own_index", 10.0, 7)
    await link.close()


def test_names_of_indexes_are_short_and_tell_lifecycles_apart() -> None:
    lifecycles = [
        Lifecycle(collection, flag=flag)
        for collection in ("docs", "d" * 200, "it's", "back\\slash")
        for flag in (None, "embedded", "e" * 200)
    ]
    every: list[Index] = [index for each in lifecycles for index in indexes(each)]
    assert len({index.name for index in every}) == len(every)
    assert all(len(index.name) < 64 for index in every)
    leased = Lifecycle("docs", lease=timedelta(minutes=1))
    assert indexes(leased) == indexes(Lifecycle("docs"))


async def test_documents_that_nobody_can_read_stop_no_scan(
    harness: PostgresHarness, caplog: pytest.LogCaptureFixture
) -> None:
    now = whole_second(harness)
    _, finder = await stuck(harness, old(now))
    async with connected(harness.url) as connection:
        for one, deep in (("deep", "[" * 3_000 + "]" * 3_000), ("huge", "9" * 5_000)):
            await connection.execute(
                "insert into headway_documents values ('docs', $1, $2::text::jsonb)",
                one,
                f'{{"x": {deep}}}',
            )
        with pytest.raises(Exception, match="check constraint"):
            await connection.execute("insert into headway_documents values ('docs', 'x', '[]')")
    found = await scanned(finder, View.UNMOVED, now, page=1)
    assert sorted(each["_id"] for each in found) == ["1", "huge"]
    assert "docs: the document 'deep' is left alone, for nobody can read it" in caplog.text


@pytest.mark.parametrize("number", ["0.12345678901234567890123", "1e-400", "1e400", "9" * 5_000])
async def test_a_number_that_only_postgresql_knows_exactly_keeps_nobody_from_a_claim(
    harness: PostgresHarness, number: str
) -> None:
    now = whole_second(harness)
    _, finder = await stuck(harness, old(now, "1"), old(now, "2"))
    async with connected(harness.url) as connection:
        body = f'{{"status": "pending", "lastOperation": {number}}}'
        for one in ("odd", "changed"):
            await connection.execute(
                "insert into headway_documents values ('docs', $1, $2::text::jsonb)", one, body
            )
        found = await scanned(finder, View.UNMOVED, now)
        await connection.execute(
            "update headway_documents set body = body || '{\"lastOperation\": 0.5}' "
            "where id = 'changed'"
        )
    claims = [claim_of(document, now) for document in found]
    assert len(claims) == 4
    won = await finder.claim(RULE, claims, "t", now, timedelta(minutes=1))
    assert won == {"1", "2", "odd"}
