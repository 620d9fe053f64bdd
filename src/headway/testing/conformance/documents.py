"""What all documents do when a handler reads them."""

from typing import Any

from headway.core.lifecycle import Lifecycle, State, by_state
from headway.testing.conformance.beginning import DOCS, BeginningConformance, begin, holding
from headway.testing.conformance.harness import EngineHarness


class DocumentsConformance(BeginningConformance):
    """Reading, and beginning."""

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
            begun = (await begin(harness, engine, ["1"], "a"))["1"]
            for document in (found, fetched, begun.document):
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
        for where in ({}, {"status": "new", "n": 1}, {"status": "new"}, {"_id": "c"}, {"n": 3}):
            assert await engine.documents.count("docs", where) == len(await ids(where))
        assert await engine.documents.count("no such collection", {}) == 0
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

    async def test_values_are_compared_as_json_has_them(self, harness: EngineHarness) -> None:
        values: dict[str, Any] = {
            "0": 0, "0.0": 0.0, "1": 1, "1.0": 1.0, "true": True, "false": False, "text": "1",
            "empty": "", "tenth": 0.1, "sum": 0.1 + 0.2, "large": 2**53 + 1, "larger": 2**53 + 2,
            "tiny": 5e-324, "huge": 1.7976931348623157e308, "third": 1 / 3, "minus": -1.5,
            "big": 2**62 + 1, "list of 1": [1], "list of true": [True], "list of 1.0": [1.0],
            "object of 1": {"a": 1}, "object of true": {"a": True}, "text true": "true",
        }  # fmt: skip
        documents = [{"_id": name, "field": value} for name, value in values.items()]
        engine = await holding(harness, *documents, {"_id": "null", "field": None})

        async def ids(value: Any, field: str = "field") -> set[str]:
            found = await engine.documents.find("docs", {field: value}, 100)
            assert await engine.documents.count("docs", {field: value}) == len(found)
            return {each["_id"] for each in found}

        together = [
            {"0", "0.0"}, {"1", "1.0"}, {"list of 1", "list of 1.0"},
        ]  # fmt: skip
        for name, value in values.items():
            same = next((each for each in together if name in each), {name})
            assert await ids(value) == same, (name, value)
        for none in (2, 1.25, 2**53 + 3, 10**400, -(2**64), float("nan"), float("inf"), "2", "1.0"):
            assert await ids(none) == set(), none
        assert await ids(1, "_id") == set()
        assert await ids("1", "_id") == {"1"}
        assert await ids(None, "_id") == set()

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
        assert await engine.documents.count("docs", {"a": None}) == 2

    async def test_a_field_is_found_by_its_whole_name(self, harness: EngineHarness) -> None:
        names = ("a.b", "a b", "ünï", "it's", 'quo"te', "x[0]", "$x", "")
        documents = [{"_id": f"{n}", name: 1} for n, name in enumerate(names)]
        engine = await holding(harness, *documents, {"_id": "x", "a": {"b": 1}, "x": [1]})
        for document, name in zip(documents, names, strict=True):
            for found in ({name: 1}, {name: 1.0}):
                assert list(await engine.documents.find("docs", found, 10)) == [document]
            for other in (True, "1", [1], dict[str, Any](), 2):
                assert list(await engine.documents.find("docs", {name: other}, 10)) == []
            absent = await engine.documents.find("docs", {name: None}, 10)
            assert len(absent) == len(names)
            assert await engine.documents.count("docs", {name: None}) == len(names)

    # Counting

    async def test_documents_are_counted_by_their_state(self, harness: EngineHarness) -> None:
        words: list[Any] = [
            "pending", "processing", None, "failed", "processed", "completed", "archived", "", 5,
            ["failed"], "failed_max_retries", "failed_max_retries", True,
        ]  # fmt: skip
        documents = [{"_id": f"{n}", "status": word} for n, word in enumerate(words)]
        engine = await holding(harness, *documents, {"_id": "without a status"})
        assert await engine.documents.tally(DOCS) == {
            State.PENDING: 4,
            State.FAILED: 1,
            State.PROCESSED: 2,
            State.GIVEN_UP: 2,
            State.FOREIGN: 5,
        }
        assert await engine.documents.tally(Lifecycle("no such collection")) == {}

    async def test_what_a_flag_says_is_counted_by_it(self, harness: EngineHarness) -> None:
        earlier, now = "2026-11-16T10:00:00Z", "2026-11-16T11:00:00Z"
        lifecycle = Lifecycle("docs", flag="it's embedded")
        done, not_done = {"it's embedded": True}, {"it's embedded": False}
        every: list[dict[str, Any]] = [
            {**done},
            {**done, "status": "failed", "lastFailedAt": now},
            {**not_done, "status": "failed"},
            {**not_done, "status": "failed", "lastFailedAt": earlier, "lastAttemptTime": now},
            {**not_done, "lastFailedAt": earlier},
            {**not_done, "lastFailedAt": now, "lastAttemptTime": now},
            {**not_done, "lastFailedAt": earlier, "lastAttemptTime": now},
            {**not_done, "lastFailedAt": "yesterday"},
            {"it's embedded": "true", "lastAttemptTime": now},
            {"it's embedded": 1},
            {"status": "processed"},
            {"status": "failed_max_retries"},
        ]
        numbered = [{"_id": f"{n}", **each} for n, each in enumerate(every)]
        engine = await holding(harness, *numbered)
        assert await engine.documents.tally(lifecycle) == {
            State.PROCESSED: 2,
            State.FAILED: 4,
            State.PENDING: 5,
            State.GIVEN_UP: 1,
        }
        assert await engine.documents.tally(lifecycle) == by_state(
            lifecycle, ((each, 1) for each in numbered)
        )
