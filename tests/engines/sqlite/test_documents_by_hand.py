"""Rows of documents that other programs wrote: swept where they are documents, else left alone."""

import asyncio
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway import Event, Lifecycle, Service, Work
from headway.clock import SystemChance
from headway.errors import UnreadableDocumentError
from headway.testing.clock import VirtualClock
from headway.testing.conformance.examples import opened, publish, take, unit
from headway.testing.conformance.stuck import (
    UNREADABLE as ODD_TIMES,
)
from headway.testing.conformance.stuck import claim_of, naive, old, scanned, seen, sweeping
from headway.testing.engines import (
    Publisher,
    State,
    Worker,
    memory_engine,
    sqlite_engine,
)
from headway.testing.facts import Recorder
from headway.testing.ports import (
    UNREADABLE,
    Beginning,
    Claim,
    Document,
    Engine,
    How,
    Increment,
    InsertNew,
    Outcome,
    Requeue,
    SweepRule,
    Update,
    View,
    Write,
    instant,
)
from headway.testing.ports import State as DocumentState
from tests.conformance.test_sqlite import SqliteHarness
from tests.unit.documents import modest

PLAIN = SweepRule(lifecycle=Lifecycle("docs"))
FLAGGED = SweepRule(lifecycle=Lifecycle("docs", flag="it's embedded"))
RULES = pytest.mark.parametrize("rule", [PLAIN, FLAGGED], ids=["plain", "flagged"])
NO_DOCUMENTS: dict[str, Any] = {
    "bytes": b'{"status": "pending"}',
    "bytes of nothing": b"\x00\xff",
    "deep": '{"a":' * 3_000 + "1" + "}" * 3_000,
    "deep list": "[" * 3_000,
    "deeper": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "half": "{",
    "list": "[1]",
    "nothing": "",
    "null": "null",
    "number": "7",
    "string": '"pending"',
    "text": "not json",
}
UNDECODABLE = {
    "half a character": '{"status":"failed","x":"\\ud800"}',
    "too large": '{"status":"failed","x":1e999}',
}
"""JSON for SQLite, and for no other program."""
BODIES = {**NO_DOCUMENTS, **UNDECODABLE}
GOOD = "with a space"


@pytest.fixture
async def engine(harness: SqliteHarness) -> Engine:
    return await opened(harness)


def by_hand(path: Path, rows: dict[str, Any]) -> None:
    """Write rows as any other program may: an id and a body."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "insert into headway_documents (collection, id, body) values ('docs', ?, ?)",
            rows.items(),
        )


def stored(harness: SqliteHarness) -> dict[str, Any]:
    with closing(sqlite3.connect(harness.path)) as connection:
        return dict(connection.execute("select id, body from headway_documents"))


# Sweeps


@RULES
@pytest.mark.parametrize("written", ["before the indexes", "after them", "without them"])
async def test_a_sweep_finds_documents_among_what_is_none(
    harness: SqliteHarness,
    engine: Engine,
    rule: SweepRule,
    written: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, candidates = harness.clock.now(), sweeping(engine).candidates
    odd = {
        f"odd {n}": json.dumps({"lastAttemptTime": each})
        for n, each in enumerate(ODD_TIMES.values())
    }
    good = {"stuck": json.dumps(old(now, "stuck")), GOOD: '{"status": "pending"} ', **odd}
    if written != "after them":
        by_hand(harness.path, {**BODIES, **good})
    if written != "without them":
        await candidates.prepare([PLAIN, FLAGGED])
    if written == "after them":
        by_hand(harness.path, {**BODIES, **good})
    assert await seen(candidates, View.UNMOVED, now, rule) == sorted(good)
    assert await seen(candidates, View.FAILED, now, rule) == []
    assert (await candidates.tally(rule, now)).stuck == len(good) + len(UNDECODABLE)
    left_alone = [line for line in caplog.messages if f": {len(NO_DOCUMENTS)} documents" in line]
    assert len(left_alone) == 1
    assert "'bytes'" in left_alone[0]
    found = await scanned(candidates, View.UNMOVED, now, rule, page=3)
    claims = [claim_of(each, now, rule) for each in found]
    won = await candidates.claim(rule, claims, "t", now, timedelta(minutes=5))
    assert sorted(won) == sorted(good)


async def test_a_scan_holds_up_no_other_program_between_its_pages(
    harness: SqliteHarness, engine: Engine
) -> None:
    now, candidates = harness.clock.now(), sweeping(engine).candidates
    await candidates.prepare([PLAIN])
    by_hand(harness.path, {f"{n}": json.dumps(old(now, f"{n}")) for n in range(4)})
    scan = candidates.scan(PLAIN, View.UNMOVED, now, newest_first=False, page=2)
    await anext(scan)
    by_hand(harness.path, {"new": "{}"})
    with closing(sqlite3.connect(harness.path)) as connection:
        busy, *_ = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
    assert busy == 0
    assert len(await anext(scan)) == 2


async def test_a_document_is_called_by_the_id_of_its_row(
    harness: SqliteHarness, engine: Engine
) -> None:
    rows = {"no id": "{}", "number": '{"_id":7}', "other id": '{"_id":"another"}'}
    by_hand(harness.path, rows)
    now, candidates = harness.clock.now(), sweeping(engine).candidates
    found = await scanned(candidates, View.UNMOVED, now)
    assert sorted(each["_id"] for each in found) == [*rows]
    claims = [Claim(each, Requeue("op", 1, 1)) for each in found]
    assert sorted(await candidates.claim(PLAIN, claims, "t", now, timedelta(minutes=5))) == [*rows]


NOW = VirtualClock().now()
TIMES = st.sampled_from(
    [
        None, "now", "soon", 7, 2460000.5, True, "", "12:00", "2026-13-01", "3000-01-01T00:00:00Z",
        *(
            text
            for ago in (-40, -20, 0, 1, 23, 24, 25, 49)
            for when in [NOW - timedelta(hours=ago)]
            for text in (instant(when), naive(when), when.isoformat(" "), when.isoformat())
        ),
    ]
)  # fmt: skip
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "status": st.sampled_from(
        [None, "pending", "processing", "failed", "failed_max_retries", "processed", "own", 5, []]
    ),
    "it's embedded": st.sampled_from([True, False, None, 1, "true"]),
    **dict.fromkeys(("lastAttemptTime", "lastFailedAt", "leaseUntil", "claimUntil"), TIMES),
    "leaseToken": st.sampled_from([None, "t", 0]),
    "claimToken": st.sampled_from([None, "t", ""]),
    "permanentFailure": st.sampled_from(
        [
            None, "x", 5, {}, {"rule": None}, {"version": "1"}, [{"rule": "x"}], {"rule": 5},
            *({"rule": rule, "version": version} for rule in ("shop.declined", "python.programming")
              for version in (None, "", "0", "1", "1 a", "2", "it's ✓")),
        ]
    ),
}  # fmt: skip


@settings(modest, max_examples=30)
@given(st.lists(st.fixed_dictionaries({}, optional=FIELDS), max_size=20))
def test_sqlite_finds_what_the_memory_engine_finds(
    tmp_path_factory: pytest.TempPathFactory, documents: list[Document]
) -> None:
    every = {f"{n}": {"_id": f"{n}", **each} for n, each in enumerate(documents)}
    state, path = State(), tmp_path_factory.mktemp("found") / "headway.db"
    state.documents["docs"] = {one: msgspec.json.encode(each) for one, each in every.items()}
    clock, chance = VirtualClock(), SystemChance()

    async def compared() -> None:
        model = sweeping(memory_engine(clock, chance, state)).candidates
        engine = sqlite_engine(path, clock, chance, synchronous="off")
        await engine.bus.open([])
        candidates = sweeping(engine).candidates
        await candidates.prepare([PLAIN, FLAGGED])
        by_hand(path, {one: json.dumps(each) for one, each in every.items()})
        for rule in [replace(each, version=of) for each in (PLAIN, FLAGGED) for of in (None, "1")]:
            for view in View:
                expected = await seen(model, view, NOW, rule)
                assert await seen(candidates, view, NOW, rule) == expected
        await engine.bus.close()

    asyncio.run(compared())


# People


@RULES
async def test_a_person_is_shown_all_and_removes_what_was_seen(
    harness: SqliteHarness, engine: Engine, rule: SweepRule
) -> None:
    by_hand(harness.path, {**BODIES, "ours": json.dumps(old(harness.clock.now(), "ours"))})
    pages = sweeping(engine).desk.browse(rule.lifecycle, [DocumentState.FOREIGN], page=2)
    browsed = {each["_id"]: each async for page in pages for each in page}
    fetched = await engine.documents.fetch("docs", [*BODIES, "ours", "gone"])
    assert fetched.keys() == {*BODIES, "ours"}
    assert browsed == {one: each for one, each in fetched.items() if one != "ours"}
    assert browsed["text"][UNREADABLE] == "not json"
    assert browsed["bytes"][UNREADABLE] == '{"status": "pending"}'
    assert UNREADABLE not in fetched["ours"]
    with closing(sqlite3.connect(harness.path)) as connection, connection:
        connection.execute("update headway_documents set body = '{}' where id = 'list'")
        connection.execute("update headway_documents set body = 'other' where id = 'text'")
    removed = await sweeping(engine).desk.remove("docs", list(browsed.values()))
    assert removed == {*BODIES} - {"list", "text"}
    assert stored(harness).keys() == {"list", "text", "ours"}


# Handlers


async def test_an_operation_about_one_begins_without_it(
    harness: SqliteHarness, engine: Engine
) -> None:
    by_hand(harness.path, {**BODIES, "ours": "{}"})
    now, ids = harness.clock.now(), ("text", "deep", "ours")
    for lifecycle in (PLAIN.lifecycle, FLAGGED.lifecycle):
        beginning = Beginning(lifecycle=lifecycle, ids=ids, operation="op", now=now)
        (begun,) = await engine.documents.begin([beginning])
        assert [begun[one].how for one in ids] == [How.FOREIGN, How.FOREIGN, How.BEGUN]
    after = stored(harness)
    assert {one: after[one] for one in BODIES} == BODIES


@pytest.mark.parametrize(
    "write",
    [
        Update("docs", "text", {"n": 1}),
        Increment("docs", "text", "n"),
        InsertNew("docs", {"_id": "text"}),
    ],
    ids=lambda write: type(write).__name__,
)
async def test_no_write_changes_one(harness: SqliteHarness, engine: Engine, write: Write) -> None:
    by_hand(harness.path, {"text": "not json"})
    await publish(engine, "a", "b")
    writes = (write, Increment("docs", "new", "n"))
    taken, now = await take(harness, engine, 2), harness.clock.now()
    finish, other = await engine.finisher.finish(
        [unit(each, now, writes=(write,)) for each, write in zip(taken, writes, strict=True)]
    )
    assert other.outcome is Outcome.COMMITTED
    if isinstance(write, InsertNew):
        assert (finish.outcome, finish.skipped) == (Outcome.COMMITTED, 1)
    else:
        assert finish.outcome is Outcome.REFUSED
        assert isinstance(finish.error, UnreadableDocumentError)
    assert stored(harness)["text"] == "not json"


async def test_a_handler_is_told_and_finds_the_others(
    harness: SqliteHarness, engine: Engine
) -> None:
    by_hand(harness.path, {**BODIES, "ours": '{"n": 1}'})
    shop, told, found = Service("shop"), list[str](), list[Document]()

    @shop.on("Looked")
    async def look(_event: Event, work: Work) -> None:
        docs = work.documents("docs")
        for call in (docs.require(["ours", "text", "deep"]), docs.get("list")):
            with pytest.raises(UnreadableDocumentError) as refused:
                await call
            told.append(str(refused.value))
        found.extend(await docs.find({}))
        found.extend(await docs.find({"n": 1}))
        worker.stop()

    await engine.bus.open(shop.queues())
    await Publisher(engine.bus, harness.clock, SystemChance()).publish("Looked", {})
    worker = Worker([shop], engine, clock=harness.clock, chance=SystemChance(), observer=Recorder())
    async with asyncio.timeout(20):
        await worker.run()
    assert "text, deep" in told[0]
    assert "list" in told[1]
    assert [each["_id"] for each in found] == ["ours", "ours"]
