"""What every store does when a person decides about documents."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from headway.core.lifecycle import Lifecycle, State
from headway.core.travel import instant
from headway.core.writes import Document, InsertNew, Update
from headway.ports.desk import DocumentDesk
from headway.ports.engine import Engine
from headway.testing.conformance.beginning import DOCS, holding
from headway.testing.conformance.examples import opened, wrote
from headway.testing.conformance.harness import EngineHarness
from headway.testing.conformance.stuck import HARD_IDS, stored, sweeping, whole_second

STATUSES: dict[State, tuple[Any, ...]] = {
    State.PENDING: ("pending", "processing", None),
    State.FAILED: ("failed",),
    State.PROCESSED: ("processed", "completed"),
    State.GIVEN_UP: ("failed_max_retries",),
    State.FOREIGN: ("archived", "", 5, ["failed"]),
}
RESET = {"status": "pending", "attemptCount": 0, "lastAttemptTime": None}


async def browsed(
    desk: DocumentDesk, *states: State, lifecycle: Lifecycle = DOCS, page: int = 100
) -> list[Document]:
    found: list[Document] = []
    async for documents in desk.browse(lifecycle, states, page=page):
        assert 0 < len(documents) <= page
        found += documents
    return found


def ids_of(documents: Sequence[Document]) -> list[str]:
    return [each["_id"] for each in documents]


async def with_desk(
    harness: EngineHarness, *documents: Document
) -> tuple[Engine, DocumentDesk, list[Document]]:
    """Give an engine with these documents, its desk, and the documents as they are read."""
    engine = await holding(harness, *documents)
    desk = sweeping(engine).desk
    return engine, desk, await browsed(desk, *State)


class DeskConformance:
    """Looking, resetting, removing, putting away, and taking down who did it."""

    # Looking

    async def test_documents_are_found_by_their_state(self, harness: EngineHarness) -> None:
        documents: dict[State, list[Document]] = {
            state: [{"_id": f"{state} {n}", "status": each} for n, each in enumerate(statuses)]
            for state, statuses in STATUSES.items()
        }
        documents[State.PENDING].append({"_id": "pending without a status"})
        permanent = {"rule": "shop.declined", "version": "1"}
        declined = {"_id": "declined", "status": "failed", "permanentFailure": permanent}
        documents[State.FAILED].append(declined)
        every = [each for its in documents.values() for each in its]
        _, desk, found = await with_desk(harness, *every)
        assert ids_of(found) == sorted(ids_of(every))
        for state, expected in documents.items():
            assert ids_of(await browsed(desk, state)) == sorted(ids_of(expected))
        both = documents[State.FAILED] + documents[State.PENDING]
        assert ids_of(await browsed(desk, State.FAILED, State.PENDING)) == sorted(ids_of(both))
        assert await browsed(desk) == []
        assert await browsed(desk, *State, lifecycle=Lifecycle("no such collection")) == []

    async def test_collections_are_named_in_which_there_is_a_document(
        self, harness: EngineHarness
    ) -> None:
        engine, desk, _ = await with_desk(harness, {"_id": "1"}, {"_id": "2"})
        assert list(await desk.collections()) == ["docs"]
        for name in ("mails", "Chunks", "it's"):
            await wrote(harness, engine, InsertNew(name, {"_id": "1"}))
        assert list(await desk.collections()) == ["Chunks", "docs", "it's", "mails"]
        assert await browsed(desk, *State, lifecycle=Lifecycle("nails")) == []
        assert list(await desk.collections()) == ["Chunks", "docs", "it's", "mails"]

    async def test_where_a_flag_says_what_is_processed_it_is_found_so(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        earlier = instant(now - timedelta(hours=1))
        lifecycle = Lifecycle("docs", flag="embedded", processed="embedded_well")
        _, desk, _ = await with_desk(
            harness,
            {"_id": "1", "embedded": True, "status": "failed"},
            {"_id": "2", "embedded": False, "status": "failed"},
            {"_id": "3", "embedded": False, "lastFailedAt": earlier},
            {"_id": "4", "lastFailedAt": earlier, "lastAttemptTime": instant(now)},
            {"_id": "5", "status": "archived"},
            {"_id": "6", "status": "failed_max_retries"},
        )
        by_state = {
            state: ids_of(await browsed(desk, state, lifecycle=lifecycle)) for state in State
        }
        assert by_state == {
            State.PENDING: ["4", "5"],
            State.FAILED: ["2", "3"],
            State.PROCESSED: ["1"],
            State.GIVEN_UP: ["6"],
            State.FOREIGN: [],
        }

    async def test_a_word_of_ones_own_for_success_is_read(self, harness: EngineHarness) -> None:
        lifecycle = Lifecycle("docs", processed="parsed")
        _, desk, _ = await with_desk(
            harness, {"_id": "1", "status": "parsed"}, {"_id": "2", "status": "processed"}
        )
        assert ids_of(await browsed(desk, State.PROCESSED, lifecycle=lifecycle)) == ["1", "2"]
        assert ids_of(await browsed(desk, State.FOREIGN)) == ["1"]

    async def test_documents_come_page_by_page_in_the_order_of_their_ids(
        self, harness: EngineHarness
    ) -> None:
        ids = sorted([*(f"{n}" for n in range(20)), "B", "a", "b"])
        _, desk, _ = await with_desk(harness, *({"_id": one, "status": "failed"} for one in ids))
        for page in (1, 2, 3, 23, 100):
            assert ids_of(await browsed(desk, State.FAILED, page=page)) == ids

    async def test_what_is_removed_or_changed_meanwhile_hides_nothing_else(
        self, harness: EngineHarness
    ) -> None:
        ids = [f"{n:02}" for n in range(10)]
        _, desk, _ = await with_desk(harness, *({"_id": one, "status": "failed"} for one in ids))
        found: list[str] = []
        async for page in desk.browse(DOCS, [State.FAILED], page=2):
            found += ids_of(page)
            await desk.remove("docs", page[:1])
            await desk.change("docs", page[1:], {"status": "pending"})
        assert found == ids

    # Changing

    async def test_fields_are_changed_where_the_status_is_as_it_was_read(
        self, harness: EngineHarness
    ) -> None:
        given_up = {"status": "failed_max_retries", "attemptCount": 3, "own": {"n": 1}}
        engine, desk, found = await with_desk(
            harness,
            {"_id": "1", **given_up, "lastAttemptTime": instant(whole_second(harness))},
            {"_id": "2", **given_up},
            {"_id": "3"},
            {"_id": "4", "status": ["odd"]},
        )
        await wrote(harness, engine, Update("docs", "2", {"status": "processed"}))
        await wrote(harness, engine, Update("docs", "3", {"own": 7}))
        assert await desk.change("docs", found, RESET) == {"1", "3", "4"}
        reset = {"status": "pending", "attemptCount": 0}
        assert await stored(engine, "1") == {"_id": "1", **reset, "own": {"n": 1}}
        assert await stored(engine, "2") == {"_id": "2", **given_up, "status": "processed"}
        assert await stored(engine, "3") == {"_id": "3", **reset, "own": 7}
        assert await stored(engine, "4") == {"_id": "4", **reset}
        assert await desk.change("docs", found, RESET) == frozenset()
        assert await desk.change("docs", [], RESET) == frozenset()

    async def test_documents_are_removed_where_the_status_is_as_it_was_read(
        self, harness: EngineHarness
    ) -> None:
        engine, desk, found = await with_desk(
            harness,
            {"_id": "1", "status": "failed"},
            {"_id": "2", "status": "failed"},
            {"_id": "3"},
        )
        await wrote(harness, engine, Update("docs", "2", {"status": None}))
        assert await desk.remove("docs", found) == {"1", "3"}
        assert set(await engine.documents.fetch("docs", ["1", "2", "3"])) == {"2"}
        assert await desk.remove("docs", found) == frozenset()
        assert await desk.remove("docs", []) == frozenset()

    async def test_documents_are_moved_where_the_status_is_as_it_was_read(
        self, harness: EngineHarness
    ) -> None:
        engine, desk, found = await with_desk(
            harness,
            {"_id": "1", "status": "failed", "own": {"a.b": [None]}},
            {"_id": "2", "status": "failed"},
            {"_id": "taken", "status": "failed", "own": "ours"},
        )
        await wrote(harness, engine, Update("docs", "2", {"status": "pending"}))
        await wrote(harness, engine, Update("docs", "1", {"own": {"a.b": [1]}}))
        await wrote(harness, engine, InsertNew("archive", {"_id": "taken", "own": "theirs"}))
        assert await desk.move("docs", found, "archive") == {"1"}
        assert set(await engine.documents.fetch("docs", ids_of(found))) == {"2", "taken"}
        archive = await engine.documents.fetch("archive", ids_of(found))
        assert archive == {
            "1": {"_id": "1", "status": "failed", "own": {"a.b": [1]}},
            "taken": {"_id": "taken", "own": "theirs"},
        }
        there = await browsed(desk, *State, lifecycle=Lifecycle("archive"))
        assert await desk.move("archive", there, "docs") == {"1"}
        assert await stored(engine, "1") == {"_id": "1", "status": "failed", "own": {"a.b": [1]}}
        assert await desk.move("docs", [], "archive") == frozenset()

    async def test_of_many_who_move_at_once_each_document_has_one(
        self, harness: EngineHarness
    ) -> None:
        ids = [f"{n}" for n in range(20)]
        engine, desk, found = await with_desk(
            harness, *({"_id": one, "status": "failed"} for one in ids)
        )
        other = sweeping(await opened(harness)).desk
        answers = await asyncio.gather(
            desk.move("docs", found, "archive"),
            other.move("docs", found[::-1], "archive"),
            desk.move("docs", found, "elsewhere"),
            other.remove("docs", found[5:]),
        )
        assert sorted(one for answer in answers for one in answer) == sorted(ids)
        assert not await engine.documents.fetch("docs", ids)
        archived = await engine.documents.fetch("archive", ids)
        elsewhere = await engine.documents.fetch("elsewhere", ids)
        assert set(archived) == answers[0] | answers[1]
        assert set(elsewhere) == answers[2]

    async def test_a_document_that_is_decided_about_may_have_any_id(
        self, harness: EngineHarness
    ) -> None:
        engine, desk, found = await with_desk(harness, *({"_id": one} for one in HARD_IDS))
        assert set(ids_of(found)) == set(HARD_IDS)
        assert await desk.move("docs", found, "it's") == set(HARD_IDS)
        there = await browsed(desk, *State, lifecycle=Lifecycle("it's"), page=3)
        assert await desk.change("it's", there, {"status": "it's", "odd": "$_id"}) == set(HARD_IDS)
        moved = await engine.documents.fetch("it's", HARD_IDS)
        for one in HARD_IDS:
            assert moved[one] == {"_id": one, "status": "it's", "odd": "$_id"}
        assert await desk.remove("it's", list(moved.values())) == set(HARD_IDS)

    async def test_thousands_are_changed_moved_and_removed(self, harness: EngineHarness) -> None:
        ids = {f"{n}" for n in range(2_000)}
        _, desk, found = await with_desk(
            harness, *({"_id": one, "status": "failed"} for one in ids)
        )
        assert await desk.change("docs", found, {"n": 1}) == ids
        assert await desk.move("docs", found, "archive") == ids
        assert await desk.remove("archive", found) == ids
