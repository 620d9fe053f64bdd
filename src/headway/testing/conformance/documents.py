"""What all documents do when a handler reads them, or begins to work on them."""

import asyncio
from datetime import datetime
from typing import Any

from headway.core.document import ATTEMPT_COUNT, LAST_ATTEMPT_TIME, LAST_OPERATION
from headway.core.writes import InsertNew, Update
from headway.ports.engine import Engine
from headway.testing.conformance.examples import opened, wrote
from headway.testing.conformance.harness import EngineHarness


def time_of(value: Any) -> datetime:
    """Read a time, in whichever way the store keeps it."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


async def holding(harness: EngineHarness, *documents: dict[str, Any]) -> Engine:
    """Give an engine with these documents in the collection `docs`."""
    engine = await opened(harness)
    await wrote(harness, engine, *(InsertNew("docs", document) for document in documents))
    return engine


class DocumentsConformance:
    """Reading, and counting attempts."""

    async def test_documents_are_fetched_by_id(self, harness: EngineHarness) -> None:
        engine = await holding(harness, {"_id": "1", "n": 1}, {"_id": "2"}, {"_id": "it's 3"})
        found = await engine.documents.fetch("docs", ["it's 3", "1", "nobody"])
        assert found == {"1": {"_id": "1", "n": 1}, "it's 3": {"_id": "it's 3"}}
        assert not await engine.documents.fetch("docs", [])
        assert not await engine.documents.fetch("no such collection", ["1"])

    async def test_many_documents_can_be_fetched_at_once(self, harness: EngineHarness) -> None:
        ids = [f"{number}" for number in range(2_000)]
        engine = await holding(harness, *({"_id": each} for each in ids))
        assert set(await engine.documents.fetch("docs", ids)) == set(ids)

    async def test_what_was_read_is_the_readers_own(self, harness: EngineHarness) -> None:
        given = {"_id": "1", "nested": {"n": [1]}}
        engine = await holding(harness, given)
        given["nested"] = "changed by the writer"
        for _ in range(2):
            (found,) = await engine.documents.find("docs", {}, 10)
            fetched = (await engine.documents.fetch("docs", ["1"]))["1"]
            begun = (await engine.documents.begin("docs", ["1"], "a", harness.clock.now()))["1"]
            for document in (found, fetched, begun):
                assert document["nested"] == {"n": [1]}
                document["nested"]["n"].append("changed by a reader")

    async def test_documents_are_found_by_what_they_hold_in_the_order_of_their_ids(
        self, harness: EngineHarness
    ) -> None:
        engine = await holding(
            harness,
            {"_id": "b", "status": "new", "n": 1},
            {"_id": "c", "status": "new", "n": 2},
            {"_id": "a", "status": "new", "n": 1},
            {"_id": "B", "status": "old", "n": 1},
            {"_id": "10", "status": "new", "n": 1},
            {"_id": "9", "status": "new", "n": 1},
        )

        async def ids(where: dict[str, Any], limit: int = 10) -> list[str]:
            return [each["_id"] for each in await engine.documents.find("docs", where, limit)]

        assert await ids({}) == ["10", "9", "B", "a", "b", "c"]
        assert await ids({"status": "new", "n": 1}) == ["10", "9", "a", "b"]
        assert await ids({"status": "new"}, 3) == ["10", "9", "a"]
        assert await ids({"_id": "c"}) == ["c"]
        assert await ids({"status": "nobody's"}) == []
        assert list(await engine.documents.find("no such collection", {}, 10)) == []

    async def test_a_value_is_found_as_it_is(self, harness: EngineHarness) -> None:
        values: dict[str, Any] = {
            "a text": "1",
            "a number": 1,
            "a real number": 1.5,
            "a word": "käse ✓ 'x' \"y\"",
            "a nested one": {"x": [1, {"y": None}]},
            "a list": [1, 2],
            "an empty list": [],
        }
        documents = [{"_id": name, "field": value} for name, value in values.items()]
        engine = await holding(harness, *documents)
        for document in documents:
            found = await engine.documents.find("docs", {"field": document["field"]}, 10)
            assert list(found) == [document]

    async def test_none_means_null_or_absent(self, harness: EngineHarness) -> None:
        engine = await holding(
            harness,
            {"_id": "1", "a": None},
            {"_id": "2"},
            {"_id": "3", "a": 0},
            {"_id": "4", "a": ""},
        )
        found = await engine.documents.find("docs", {"a": None}, 10)
        assert [document["_id"] for document in found] == ["1", "2"]

    async def test_a_field_is_found_by_its_whole_name(self, harness: EngineHarness) -> None:
        names = ("a.b", "a b", "ünï", "it's", 'quo"te', "x[0]", "$x", "")
        documents = [{"_id": f"{n}", name: 1} for n, name in enumerate(names)]
        engine = await holding(harness, *documents, {"_id": "x", "a": {"b": 1}, "x": [1]})
        for document, name in zip(documents, names, strict=True):
            assert list(await engine.documents.find("docs", {name: 1}, 10)) == [document]

    # Attempts

    async def test_beginning_counts_an_attempt(self, harness: EngineHarness) -> None:
        engine = await holding(harness, {"_id": "1", "status": "new"}, {"_id": "2"}, {"_id": "3"})
        now = harness.clock.now().replace(microsecond=0)
        begun = await engine.documents.begin("docs", ["1", "2", "nobody"], "a", now)
        assert set(begun) == {"1", "2"}
        for document in begun.values():
            assert (document[ATTEMPT_COUNT], document[LAST_OPERATION]) == (1, "a")
            assert time_of(document[LAST_ATTEMPT_TIME]) == now
        stored = await engine.documents.fetch("docs", ["1", "2", "3", "nobody"])
        assert stored == {**begun, "3": {"_id": "3"}}
        assert stored["1"]["status"] == "new"

    async def test_an_operation_is_counted_once(self, harness: EngineHarness) -> None:
        engine = await holding(harness, {"_id": "1"}, {"_id": "2", ATTEMPT_COUNT: None})
        other = await opened(harness)
        counts = []
        for operation in ("a", "a", "b", "b", "a"):
            now = harness.clock.now().replace(microsecond=0)
            begun = await other.documents.begin("docs", ["1", "2"], operation, now)
            assert {document[LAST_OPERATION] for document in begun.values()} == {operation}
            assert time_of(begun["1"][LAST_ATTEMPT_TIME]) == now
            counts.append([begun[each][ATTEMPT_COUNT] for each in ("1", "2")])
            await harness.pass_time(harness.moment)
        assert counts == [[1, 1], [1, 1], [2, 2], [2, 2], [3, 3]]
        assert (await engine.documents.fetch("docs", ["1"]))["1"][ATTEMPT_COUNT] == 3

    async def test_an_operation_is_counted_once_even_if_begun_by_many(
        self, harness: EngineHarness
    ) -> None:
        engines = [await holding(harness, {"_id": "1"}), await opened(harness)]
        now = harness.clock.now()
        await asyncio.gather(
            *(e.documents.begin("docs", ["1", "1"], "a", now) for e in engines for _ in range(3))
        )
        assert (await engines[0].documents.fetch("docs", ["1"]))["1"][ATTEMPT_COUNT] == 1

    async def test_processed_documents_stay_untouched(self, harness: EngineHarness) -> None:
        processed = {"_id": "1", "status": "processed", ATTEMPT_COUNT: 2, LAST_OPERATION: "x"}
        engine = await holding(harness, processed, {"_id": "2", "status": "failed"})
        begun = await engine.documents.begin("docs", ["1", "2"], "a", harness.clock.now())
        assert begun["1"] == processed
        assert begun["2"][ATTEMPT_COUNT] == 1
        assert (await engine.documents.fetch("docs", ["1"]))["1"] == processed
        reset = Update("docs", "1", {"status": "new"}, {"status": "processed"})
        await wrote(harness, engine, reset)
        begun = await engine.documents.begin("docs", ["1"], "a", harness.clock.now())
        assert begun["1"][ATTEMPT_COUNT] == 3
