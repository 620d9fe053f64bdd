"""Sweeps on PostgreSQL: indexes that are made in peace, and documents that others wrote."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headway import Lifecycle
from headway.errors import UnreadableDocumentError
from headway.testing.conformance.examples import opened, wrote
from headway.testing.conformance.stuck import (
    FLAGGED,
    RULE,
    claim_of,
    old,
    scanned,
    seen,
    stuck,
    sweeping,
    whole_second,
)
from headway.testing.ports import (
    UNREADABLE,
    Beginning,
    How,
    InsertNew,
    Outcome,
    State,
    SweepRule,
    Update,
    View,
)
from tests.engines.pairs.postgres_harness import PostgresHarness, connected

pytestmark = pytest.mark.server("postgresql")
DEEP = '{"x": ' + "[" * 3_000 + "]" * 3_000 + ', "status": "failed"}'

HUGE = f'{{"x": {"9" * 5_000}}}'


@pytest.fixture
async def harness(postgres_database: str) -> AsyncIterator[PostgresHarness]:
    harness = PostgresHarness(postgres_database)
    yield harness
    await harness.close()


async def by_hand(harness: PostgresHarness, *rows: tuple[str, str]) -> None:
    """Write documents as any other program may: an id and a body."""
    async with connected(harness.url) as connection:
        await connection.executemany(
            "insert into headway_documents values ('docs', $1, $2::text::jsonb)", rows
        )


# Indexes


async def indexes(harness: PostgresHarness) -> dict[str, bool]:
    """Name the indexes of views, and say whether each is valid."""
    async with connected(harness.url) as connection:
        rows = await connection.fetch(
            "select c.relname, i.indisvalid from pg_index i "
            "join pg_class c on c.oid = i.indexrelid where starts_with(c.relname, 'headway_view_')"
        )
    return dict(rows)


async def test_indexes_are_made_while_others_write(harness: PostgresHarness) -> None:
    now = whole_second(harness)
    engine = await opened(harness)
    finder = sweeping(engine).candidates
    written: list[str] = []
    made = asyncio.create_task(finder.prepare([RULE, FLAGGED]))
    while len(written) < 5 or not made.done():
        await wrote(harness, engine, InsertNew("docs", old(now, f"{len(written):04}")))
        written.append(f"{len(written):04}")
    await made
    assert await seen(finder, View.UNMOVED, now) == written


async def test_an_index_that_came_to_no_end_is_made_again(harness: PostgresHarness) -> None:
    now = whole_second(harness)
    _, finder = await stuck(harness, old(now))
    whole = await indexes(harness)
    assert all(whole.values())
    broken, missing, *_ = sorted(whole)
    async with connected(harness.url) as connection:
        await connection.execute(
            "update pg_index set indisvalid = false from pg_class c "
            f"where c.oid = indexrelid and c.relname = '{broken}'"
        )
        await connection.execute(f"drop index {missing}")
    assert await indexes(harness) != whole
    await finder.prepare([RULE])
    assert await indexes(harness) == whole
    assert await seen(finder, View.UNMOVED, now) == ["1"]


async def test_an_index_does_not_wait_for_ever_for_an_old_transaction(
    harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.adapters.postgres.preparing._PATIENCE_SECONDS", 1)
    rule = SweepRule(lifecycle=Lifecycle("late", flag="never_seen_before"))
    engine = await opened(harness)
    await wrote(harness, engine, InsertNew("late", old(whole_second(harness))))
    finder = sweeping(engine).candidates
    async with connected(harness.url) as report:
        await report.execute("set application_name = 'monthly report'")
        await report.execute("begin isolation level repeatable read")
        await report.fetch("select id from headway_documents")
        for _ in range(2):  # the second one meets what the first has left behind
            async with asyncio.timeout(15):
                with pytest.raises(TimeoutError) as caught:
                    await finder.prepare([rule])
            assert f"{report.get_server_pid()} (monthly report" in str(caught.value)
    await finder.prepare([rule])
    made = await indexes(harness)
    assert made
    assert all(made.values())


# What others wrote


async def test_what_is_nested_too_deeply_is_left_alone_shown_and_removed(
    harness: PostgresHarness, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await opened(harness)
    desk, now = sweeping(engine).desk, whole_second(harness)
    await wrote(harness, engine, InsertNew("docs", {"_id": "done", "status": "processed"}))
    rows = {"deep": DEEP, "changed": DEEP, "foreign": '{"status": "ours"}', "huge": HUGE}
    await by_hand(harness, *rows.items())
    finder = sweeping(engine).candidates
    assert await seen(finder, View.UNMOVED, now) == ["huge"]
    assert await seen(finder, View.FAILED, now) == []
    assert all(f"'{one}'" in caplog.text for one in ("changed", "deep"))

    async def foreign(lifecycle: Lifecycle) -> list[Any]:
        pages = desk.browse(lifecycle, [State.FOREIGN], page=2)
        return [each async for page in pages for each in page]

    found = await foreign(RULE.lifecycle)
    assert [each["_id"] for each in found] == ["changed", "deep", "foreign"]
    flagged = await foreign(replace(RULE.lifecycle, flag="done"))
    assert [each["_id"] for each in flagged] == ["changed", "deep"]
    fetched = await engine.documents.fetch("docs", ["deep", "changed", "foreign"])
    assert sorted(fetched.values(), key=lambda each: str(each["_id"])) == found
    assert fetched["deep"][UNREADABLE] == DEEP
    readable = [each["_id"] for each in await engine.documents.find("docs", {}, 9)]
    assert readable == ["done", "foreign", "huge"]

    beginning = Beginning(lifecycle=RULE.lifecycle, ids=("deep",), operation="op", now=now)
    (begun,) = await engine.documents.begin([beginning])
    assert begun["deep"].how is How.FOREIGN
    finish = await wrote(harness, engine, Update("docs", "deep", {"n": 1}))
    assert finish.outcome is Outcome.REFUSED
    assert isinstance(finish.error, UnreadableDocumentError)

    async with connected(harness.url) as connection:
        await connection.execute("update headway_documents set body = '{}' where id = 'changed'")
    assert await desk.remove("docs", found) == {"deep", "foreign"}
    assert set(await engine.documents.fetch("docs", ["deep", "changed", "foreign"])) == {"changed"}


@pytest.mark.parametrize("number", ["0.12345678901234567890123", "1e-400", "1e400", "9" * 5_000])
async def test_a_number_that_only_postgresql_knows_exactly_keeps_no_sweeper_from_a_claim(
    harness: PostgresHarness, number: str
) -> None:
    now = whole_second(harness)
    _, finder = await stuck(harness, old(now, "1"), old(now, "2"))
    body = f'{{"status": "pending", "lastOperation": {number}}}'
    await by_hand(harness, ("odd", body), ("changed", body))
    found = await scanned(finder, View.UNMOVED, now)
    async with connected(harness.url) as connection:
        await connection.execute(
            "update headway_documents set body = body || '{\"lastOperation\": 0.5}' "
            "where id = 'changed'"
        )
    claims = [claim_of(document, now) for document in found]
    assert len(claims) == 4
    won = await finder.claim(RULE, claims, "t", now, timedelta(minutes=1))
    assert won == {"1", "2", "odd"}
