"""Rows of SQLite that hold no document: named, shown, left as they are, and removed by a person."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway import Lifecycle, Work
from headway.core.unreadable import is_stand_in
from headway.errors import UnreadableDocumentError
from headway.runtime.work import Around, Buffer
from headway.testing.clock import VirtualClock
from headway.testing.conformance.examples import opened, publish, take, unit
from headway.testing.conformance.harness import EngineHarness
from headway.testing.conformance.stuck import old, scanned, seen
from headway.testing.ports import (
    UNREADABLE,
    Beginning,
    Engine,
    How,
    Increment,
    InsertNew,
    Outcome,
    State,
    Sweeping,
    SweepRule,
    Update,
    View,
    Write,
)
from tests.conformance.test_sqlite import SqliteHarness

PLAIN = SweepRule(lifecycle=Lifecycle("docs"))
FLAGGED = SweepRule(lifecycle=Lifecycle("docs", flag="embedded"))
BODIES: dict[str, Any] = {
    "text": "not json",
    "list": "[1]",
    "nothing": "",
    "bytes": b'{"status": "pending"}',
    "deep": '{"a":' * 3_000 + "1" + "}" * 3_000,
    "half a character": '{"status":"failed","x":"\\ud800"}',
}
IN_NO_VIEW = 5
"""SQLite itself sees that these are no documents. The last looks like one to it."""


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "headway.db")
    yield harness
    await harness.close()


@pytest.fixture
async def engine(harness: SqliteHarness) -> Engine:
    engine = await opened(harness)
    rows = {**BODIES, "ours": json.dumps(old(harness.clock.now(), "ours"))}
    with closing(sqlite3.connect(harness.path)) as connection, connection:
        connection.executemany(
            "insert into headway_documents (collection, id, body) values ('docs', ?, ?)",
            rows.items(),
        )
    return engine


def sweeping(engine: Engine) -> Sweeping:
    assert engine.sweeping is not None
    return engine.sweeping


def stored(harness: SqliteHarness) -> dict[str, Any]:
    with closing(sqlite3.connect(harness.path)) as connection:
        return dict(connection.execute("select id, body from headway_documents"))


@pytest.mark.parametrize("rule", [PLAIN, FLAGGED], ids=["plain", "flagged"])
async def test_a_sweep_counts_and_names_them_once(
    harness: SqliteHarness, engine: Engine, rule: SweepRule, caplog: pytest.LogCaptureFixture
) -> None:
    candidates, now = sweeping(engine).candidates, harness.clock.now()
    await candidates.prepare([rule])
    for view in View:
        assert await seen(candidates, view, now, rule) == ["ours"] * (view is View.UNMOVED)
    assert [line for line in caplog.messages if f": {IN_NO_VIEW} documents are left" in line] == [
        (
            f"docs: {IN_NO_VIEW} documents are left alone, for nobody can read them (the first is "
            "'bytes'): write each as a JSON object, or purge it by its id"
        )
    ]


async def test_where_all_are_documents_nothing_is_said(
    harness: SqliteHarness, caplog: pytest.LogCaptureFixture
) -> None:
    engine = await opened(harness)
    await scanned(sweeping(engine).candidates, View.UNMOVED, harness.clock.now())
    assert not caplog.messages


@pytest.mark.parametrize("rule", [PLAIN, FLAGGED], ids=["plain", "flagged"])
async def test_a_person_is_shown_all_that_was_found(engine: Engine, rule: SweepRule) -> None:
    pages = sweeping(engine).desk.browse(rule.lifecycle, [State.FOREIGN], page=2)
    browsed = {each["_id"]: each async for page in pages for each in page}
    fetched = await engine.documents.fetch("docs", [*BODIES, "ours", "nobody"])
    assert fetched.keys() == {*BODIES, "ours"}
    assert browsed == {one: each for one, each in fetched.items() if one != "ours"}
    assert all(map(is_stand_in, browsed.values()))
    assert browsed["text"][UNREADABLE] == "not json"
    assert browsed["bytes"][UNREADABLE] == '{"status": "pending"}'
    assert not is_stand_in(fetched["ours"])


async def test_a_person_removes_what_was_seen_and_nothing_else(
    harness: SqliteHarness, engine: Engine
) -> None:
    found = await engine.documents.fetch("docs", list(BODIES))
    with closing(sqlite3.connect(harness.path)) as connection, connection:
        connection.execute("update headway_documents set body = '{}' where id = 'list'")
        connection.execute("update headway_documents set body = 'other' where id = 'text'")
    removed = await sweeping(engine).desk.remove("docs", list(found.values()))
    assert removed == {*BODIES} - {"list", "text"}
    assert stored(harness).keys() == {"list", "text", "ours"}


async def test_an_operation_about_one_begins_without_it(
    harness: SqliteHarness, engine: Engine
) -> None:
    before = stored(harness)
    now = harness.clock.now()
    ids = ("text", "deep", "ours")
    for lifecycle in (PLAIN.lifecycle, FLAGGED.lifecycle):
        beginning = Beginning(lifecycle=lifecycle, ids=ids, operation="op", now=now)
        (begun,) = await engine.documents.begin([beginning])
        assert [begun[one].how for one in ids] == [How.FOREIGN, How.FOREIGN, How.BEGUN]
    after = stored(harness)
    assert {one: after[one] for one in BODIES} == {one: before[one] for one in BODIES}


@pytest.mark.parametrize(
    "write", [Update("docs", "text", {"n": 1}), Increment("docs", "text", "n")], ids=repr
)
async def test_no_write_changes_one(harness: SqliteHarness, engine: Engine, write: Write) -> None:
    finish, other = await finished(harness, engine, write, Increment("docs", "new", "n"))
    assert (finish.outcome, other.outcome) == (Outcome.REFUSED, Outcome.COMMITTED)
    assert isinstance(finish.error, UnreadableDocumentError)
    assert "under text: write it as a JSON object by hand" in str(finish.error)
    assert stored(harness)["text"] == "not json"


async def test_what_is_inserted_only_where_there_is_nothing_leaves_it(
    harness: SqliteHarness, engine: Engine
) -> None:
    (finish,) = await finished(harness, engine, InsertNew("docs", {"_id": "text"}))
    assert (finish.outcome, finish.skipped) == (Outcome.COMMITTED, 1)
    assert stored(harness)["text"] == "not json"


async def finished(harness: EngineHarness, engine: Engine, *writes: Write) -> Any:
    await publish(engine, *(f"{n}" for n in range(len(writes))))
    taken = await take(harness, engine, len(writes))
    now = harness.clock.now()
    return await engine.finisher.finish(
        [unit(each, now, writes=(write,)) for each, write in zip(taken, writes, strict=True)]
    )


async def test_a_handler_is_told_and_finds_the_others(engine: Engine) -> None:
    clock = VirtualClock()
    around = Around(store=engine.documents, now=clock.now, new_id=lambda: "new")
    docs = Work(Buffer("key", around, {}), 1).documents("docs")
    with pytest.raises(UnreadableDocumentError, match="is in docs under text, deep: write it"):
        await docs.require(["ours", "text", "deep"])
    with pytest.raises(UnreadableDocumentError):
        await docs.get("list")
    assert [each["_id"] for each in await docs.find({})] == ["ours"]
