"""What may be stuck is found by indexes, whatever other programs have written into the table."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway import Lifecycle
from headway.adapters.memory.views import is_in
from headway.adapters.sqlite.candidates import SqliteCandidates
from headway.adapters.sqlite.schema import _make
from headway.adapters.sqlite.stuck import Expressions, questions
from headway.testing.clock import VirtualClock
from headway.testing.conformance.stuck import UNREADABLE, naive, old, scanned, seen
from headway.testing.engines import SqliteStore, sqlite_store
from headway.testing.ports import (
    Candidates,
    Claim,
    Document,
    DocumentDesk,
    Requeue,
    State,
    SweepRule,
    View,
    instant,
    judge,
)
from tests.unit.documents import modest

T = TypeVar("T")

PLAIN = SweepRule(lifecycle=Lifecycle("docs"))
FLAGGED = SweepRule(lifecycle=Lifecycle("docs", flag="it's embedded"))
NOW = VirtualClock().now()

NO_DOCUMENTS: tuple[Any, ...] = (
    "not JSON",
    "",
    "{",
    "[1]",
    '"pending"',
    "null",
    "7",
    '{"status": "pending"} ',
    b'{"status": "pending"}',
    b"\x00\xff",
    "[" * 3_000,
    '{"a":' * 100_000 + "1" + "}" * 100_000,
)
"""Bodies that somebody wrote by hand. With a space behind it, it is a document."""
UNDECODABLE = ('{"status":"failed","x":"\\ud800"}', '{"status":"failed","x":1e999}')
"""JSON for SQLite, and for nobody else."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = sqlite_store(tmp_path / "store.db", VirtualClock(), synchronous="off")
    await store.open()
    yield store
    await store.close()


def candidates_of(store: SqliteStore) -> Candidates:
    assert store.sweeping is not None
    return store.sweeping.candidates


def desk_of(store: SqliteStore) -> DocumentDesk:
    assert store.sweeping is not None
    return store.sweeping.desk


def by_hand(path: Path, *rows: tuple[str, Any]) -> None:
    """Write rows as any other program may: an id and a body."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "insert into headway_documents (collection, id, body) values ('docs', ?, ?)", rows
        )


# Indexes


class Explaining:
    """Notes how SQLite carries out each question."""

    def __init__(self, readers: Any) -> None:
        self._readers = readers
        self.plans: list[str] = []
        self.statements: set[str] = set()

    async def run(self, read: Callable[[Any], T]) -> T:
        def explained(connection: sqlite3.Connection) -> T:
            return read(_Explained(connection, self))

        found: T = await self._readers.run(explained)
        return found


class _Explained:
    def __init__(self, connection: sqlite3.Connection, explaining: Explaining) -> None:
        self._connection = connection
        self._explaining = explaining

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        self._explaining.statements.add(statement)
        answer = self._connection.execute(statement, values)  # which sees what others have made
        rows = self._connection.execute(f"explain query plan {statement}", values)
        self._explaining.plans.extend(row[3] for row in rows)
        return answer


@pytest.mark.parametrize("rule", [PLAIN, FLAGGED], ids=["plain", "flagged"])
async def test_nothing_is_read_but_what_is_in_a_view(store: SqliteStore, rule: SweepRule) -> None:
    await candidates_of(store).prepare([PLAIN, FLAGGED])
    rule = replace(rule, version="2")
    failures = {"declined": "shop.declined", "bug": "python.programming"}
    rows = [
        old(NOW, f"{one} {version}", status="failed", permanentFailure=failure)
        for one, by in failures.items()
        for version in ("1", "2", "3")
        for failure in [{"rule": by, "version": version}]
    ]
    by_hand(store._writer._location.path, *((each["_id"], json.dumps(each)) for each in rows))
    explaining: Any = Explaining(store._readers)
    candidates = SqliteCandidates(store._writer, explaining)
    for view in View:
        for newest_first in (False, True):
            await scanned(candidates, view, NOW, rule, newest_first=newest_first)
    assert len(explaining.plans) > 2 * len(View)
    for plan in explaining.plans:
        assert plan.startswith("SEARCH headway_documents USING INDEX headway_stuck_"), plan
    explaining.plans.clear()
    await candidates.tally(rule, NOW)
    assert explaining.plans
    for plan in explaining.plans:  # the times at which documents were made are in no index
        assert plan.startswith(("SEARCH headway_documents USING INDEX", "USE TEMP B-TREE")), plan


async def test_each_count_asks_in_the_same_words(store: SqliteStore) -> None:
    """A connection keeps the last 256 statements, and these are some 30 kB each."""
    explaining: Any = Explaining(store._readers)
    candidates = SqliteCandidates(store._writer, explaining)
    await candidates.tally(PLAIN, NOW)
    first = set(explaining.statements)
    await candidates.tally(PLAIN, NOW + timedelta(minutes=1))
    assert explaining.statements == first


async def test_the_index_of_an_older_headway_is_dropped(store: SqliteStore, tmp_path: Path) -> None:
    former = {"headway_stuck_645faf436bfcea19", "headway_stuck_802e73e53c68bf3c"}
    theirs = "headway_stuck_of_others"
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        for name in (*former, theirs):
            connection.execute(f"create index {name} on headway_documents (body)")

    def indexes() -> set[str]:
        with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
            found = connection.execute("select name from sqlite_master where type = 'index'")
            return {name for (name,) in found}

    await candidates_of(store).prepare([FLAGGED])
    assert {*former, theirs} <= indexes()
    for _ in range(2):
        await candidates_of(store).prepare([PLAIN, PLAIN])
        assert indexes() & {*former, theirs} == {theirs}
        assert indexes() > set(Expressions(PLAIN.lifecycle).indexes())


async def test_a_scan_holds_up_nobody_between_its_pages(store: SqliteStore) -> None:
    path = store._writer._location.path
    candidates = candidates_of(store)
    await candidates.prepare([PLAIN])
    by_hand(path, *((f"{n}", json.dumps(old(NOW, f"{n}"))) for n in range(4)))
    scan = candidates.scan(PLAIN, View.UNMOVED, NOW, newest_first=False, page=2)
    await anext(scan)
    by_hand(path, ("new", "{}"))
    with closing(sqlite3.connect(path)) as connection:
        busy, left, moved = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
    assert (busy, left, moved) == (0, 0, 0)
    assert len(await anext(scan)) == 2


async def test_without_its_indexes_the_answers_are_the_same(store: SqliteStore) -> None:
    rows = [(f"{n}", body) for n, body in enumerate((*NO_DOCUMENTS, *UNDECODABLE))]
    by_hand(store._writer._location.path, *rows, ("old", json.dumps(old(NOW, "old"))))
    for view in View:
        found = await seen(candidates_of(store), view, NOW)
        assert found == (["7", "old"] if view is View.UNMOVED else [])


# What others have written


@pytest.mark.parametrize("written", ["before", "after"])
async def test_what_is_no_document_is_no_candidate_and_breaks_nothing(
    store: SqliteStore, written: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = store._writer._location.path
    candidates, desk = candidates_of(store), desk_of(store)
    rows = [(f"{n}", body) for n, body in enumerate((*NO_DOCUMENTS, *UNDECODABLE))]
    odd = [
        (f"odd {n}", json.dumps({"lastAttemptTime": each}))
        for n, each in enumerate(UNREADABLE.values())
    ]
    stuck = json.dumps(old(NOW, "stuck"))
    if written == "before":
        by_hand(path, *rows, *odd, ("stuck", stuck))
    await candidates.prepare([PLAIN, FLAGGED])
    if written == "after":
        by_hand(path, *rows, *odd, ("stuck", stuck))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("update headway_documents set body = body || ' ' where id = 'stuck'")
    expected = sorted(["7", "stuck", *(one for one, _ in odd)])
    for rule in (PLAIN, FLAGGED):
        assert await seen(candidates, View.UNMOVED, NOW, rule) == expected
        assert await seen(candidates, View.FAILED, NOW, rule) == []
        assert (await candidates.tally(rule, NOW)).stuck == len(expected) + len(UNDECODABLE)
    assert "docs: 2 documents are left alone, for nobody can read them (the first is" in caplog.text
    found = await scanned(candidates, View.UNMOVED, NOW, page=3)
    assert sorted(each["_id"] for each in found) == expected
    browsed = [
        each["_id"]
        async for page in desk.browse(PLAIN.lifecycle, list(State), page=3)
        for each in page
    ]
    assert browsed == sorted({one for one, _ in (*rows, *odd)} | {"stuck"})
    claims = [
        Claim(each, judgement)
        for each in found
        for judgement in [judge(each, PLAIN, NOW)]
        if isinstance(judgement, Requeue)
    ]
    won = await candidates.claim(PLAIN, claims, "t", NOW, timedelta(minutes=5))
    assert sorted(won) == expected
    gone = [{"_id": one} for one, _ in rows if one != "7"]
    assert await desk.remove("docs", gone) == frozenset()


@pytest.mark.parametrize("where", [{"status": "pending"}, {"status": None}, {"n": 1}, {}])
async def test_a_handler_finds_documents_among_what_is_none(
    store: SqliteStore, where: dict[str, Any]
) -> None:
    rows = [(f"{n}", body) for n, body in enumerate((*NO_DOCUMENTS, *UNDECODABLE))]
    ours = {"_id": "ours", "n": 1, **where}
    by_hand(store._writer._location.path, *rows, ("ours", json.dumps(ours)))
    found = await store.documents.find("docs", where, 10)
    assert ours in found
    assert {each["_id"] for each in found} <= {"ours", "7"}


async def test_a_document_is_called_by_the_id_of_its_row(store: SqliteStore) -> None:
    path = store._writer._location.path
    by_hand(path, ("no id", "{}"), ("other id", '{"_id":"another"}'), ("number", '{"_id":7}'))
    candidates = candidates_of(store)
    found = await scanned(candidates, View.UNMOVED, NOW)
    assert sorted(each["_id"] for each in found) == ["no id", "number", "other id"]
    claims = [Claim(each, Requeue("op", 1, 1)) for each in found]
    won = await candidates.claim(PLAIN, claims, "t", NOW, timedelta(minutes=5))
    assert sorted(won) == ["no id", "number", "other id"]


async def test_a_person_is_shown_a_state_even_where_only_we_can_read_the_time(
    store: SqliteStore,
) -> None:
    failed = {"lastFailedAt": "20200102T030405Z", "lastAttemptTime": "2020-01-01T00:00:00Z"}
    by_hand(store._writer._location.path, ("1", json.dumps(failed)))
    pages = desk_of(store).browse(FLAGGED.lifecycle, [State.FAILED], page=10)
    assert [each["_id"] async for page in pages for each in page] == ["1"]
    assert await seen(candidates_of(store), View.UNMOVED, NOW, FLAGGED) == ["1"]


# The indexes know what the memory engine knows

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
WORDS: st.SearchStrategy[Any] = st.sampled_from(
    [None, "pending", "processing", "failed", "failed_max_retries", "processed", "archived", 5, []]
)
FIELDS = {
    "status": WORDS,
    "it's embedded": st.sampled_from([True, False, None, 1, "true"]),
    "lastAttemptTime": TIMES,
    "lastFailedAt": TIMES,
    "leaseToken": st.sampled_from([None, "t", 0]),
    "leaseUntil": TIMES,
    "claimToken": st.sampled_from([None, "t", ""]),
    "claimUntil": TIMES,
}
FIELDS["permanentFailure"] = st.sampled_from(
    [
        None, "x", 5, {}, {"rule": None}, {"version": "1"}, [{"rule": "x"}], {"rule": 5},
        *({"rule": rule, "version": version} for rule in ("shop.declined", "python.programming")
          for version in (None, "", "0", "1", "1 a", "2", "it's ✓")),
    ]
)  # fmt: skip
DOCUMENTS = st.fixed_dictionaries({}, optional=FIELDS)


@settings(modest, max_examples=60)
@given(st.lists(DOCUMENTS, max_size=20))
def test_indexes_know_what_is_in_a_view(documents: list[Document]) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        _make(connection)
        for rule in (PLAIN, FLAGGED):
            for statement in Expressions(rule.lifecycle).indexes().values():
                connection.execute(statement)
        every = {f"{n}": {"_id": f"{n}", **each} for n, each in enumerate(documents)}
        connection.executemany(
            "insert into headway_documents (collection, id, body) values ('docs', ?, ?)",
            [(one, json.dumps(each)) for one, each in every.items()],
        )
        rules = [replace(each, version=of) for each in (PLAIN, FLAGGED) for of in (None, "", "1")]
        for rule in rules:
            for view in View:
                expected = {one for one, each in every.items() if is_in(view, each, rule, NOW)}
                assert _found(connection, rule, view) == expected


def _found(connection: sqlite3.Connection, rule: SweepRule, view: View) -> set[str]:
    rows = [
        one
        for asked in questions(connection, rule, view, NOW)
        for part in asked.ranges
        for _, one, _ in connection.execute(
            asked.page(newest_first=True), (part.above, part.below, 1_000)
        )
    ]
    assert len(rows) == len(set(rows))
    return set(rows)


async def test_many_may_claim_while_others_scan(store: SqliteStore) -> None:
    candidates = candidates_of(store)
    await candidates.prepare([PLAIN])
    rows = [(f"{n:04}", json.dumps(old(NOW, f"{n:04}"))) for n in range(600)]
    by_hand(store._writer._location.path, *rows)
    won: list[str] = []

    async def sweep(token: str, *, newest_first: bool) -> None:
        scan = candidates.scan(PLAIN, View.UNMOVED, NOW, newest_first=newest_first, page=50)
        async for page in scan:
            claims = [
                Claim(each, judgement)
                for each in page
                for judgement in [judge(each, PLAIN, NOW)]
                if isinstance(judgement, Requeue)
            ]
            won.extend(await candidates.claim(PLAIN, claims, token, NOW, timedelta(minutes=5)))

    await asyncio.gather(*(sweep(f"{n}", newest_first=bool(n % 2)) for n in range(4)))
    assert sorted(won) == [one for one, _ in rows]
