"""What every commit makes of a handler's writes and of statements of the user's own."""

from typing import Any

from headway.core.errors import ConditionLostError, DocumentNotFoundError
from headway.core.writes import Add, Increment, InsertNew, Update, Write
from headway.ports.commit import Outcome
from headway.testing.conformance.bodies import body_for
from headway.testing.conformance.examples import (
    kinds,
    opened,
    publish,
    take,
    take_one,
    unit,
    wrote,
)
from headway.testing.conformance.harness import Capability, EngineHarness

EXACT = 2**53 + 1
"""The first whole number that a float cannot hold."""


class EffectsConformance:
    """Each write means what `headway.core.writes.applied` says."""

    # Documents

    async def test_documents_come_out_as_they_went_in(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        document = {
            "_id": "注文/'1'\"",
            "text": 'käse ✓ "\\\n',
            "": "no name",
            "whole": EXACT,
            "real": 0.1,
            "yes": True,
            "nothing": None,
            "nested": {"list": [1, [2, {"a": None}], "x"], "empty": {}},
        }
        await wrote(harness, engine, InsertNew("docs", document))
        found = await engine.documents.fetch("docs", ["注文/'1'\""])
        assert found == {"注文/'1'\"": document}
        assert isinstance(found["注文/'1'\""]["yes"], bool)

    async def test_insert_new_skips_what_is_there_and_counts_it(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        first = await wrote(
            harness,
            engine,
            *(InsertNew("docs", {"_id": each, "by": 1}) for each in ("a", "b", "a")),
        )
        assert (first.outcome, first.skipped) == (Outcome.COMMITTED, 1)
        second = await wrote(
            harness,
            engine,
            *(InsertNew("docs", {"_id": each, "by": 2}) for each in ("a", "b", "c")),
            InsertNew("others", {"_id": "a", "by": 2}),
        )
        assert (second.outcome, second.skipped) == (Outcome.COMMITTED, 2)
        docs = await engine.documents.find("docs", {}, 10)
        assert [(d["_id"], d["by"]) for d in docs] == [("a", 1), ("b", 1), ("c", 2)]
        assert len(await engine.documents.find("others", {}, 10)) == 1

    async def test_add_keeps_everything_that_is_added(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        finish = await wrote(
            harness, engine, *(Add("log", {"_id": f"{n}", "line": "same"}) for n in range(5))
        )
        assert finish.skipped == 0
        await wrote(harness, engine, Add("log", {"_id": "5", "line": "same"}))
        again = await wrote(harness, engine, Add("log", {"_id": "5", "line": "changed"}))
        assert (again.outcome, again.skipped) == (Outcome.COMMITTED, 0)
        assert len(await engine.documents.find("log", {"line": "same"}, 10)) == 6

    async def test_increments_are_exact(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await wrote(
            harness,
            engine,
            InsertNew("docs", {"_id": "1", "big": EXACT, "null": None, "text": "kept"}),
        )
        await wrote(
            harness,
            engine,
            Increment("docs", "1", "big"),
            Increment("docs", "1", "null"),
            Increment("docs", "1", "missing", 5),
            Increment("docs", "1", "missing", -7),
            Increment("docs", "1", "real", 0.5),
            Increment("docs", "new", "n", 2),
        )
        assert await engine.documents.fetch("docs", ["1", "new"]) == {
            "1": {
                "_id": "1",
                "big": EXACT + 1,
                "null": 1,
                "text": "kept",
                "missing": -2,
                "real": 0.5,
            },
            "new": {"_id": "new", "n": 2},
        }

    async def test_update_changes_the_fields_that_are_named(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        await wrote(harness, engine, InsertNew("docs", {"_id": "1", "a": 1, "b": {"x": 1}}))
        finish = await wrote(
            harness, engine, Update("docs", "1", {"b": {"y": 2}, "c": None, "a.b": 3})
        )
        assert finish.outcome is Outcome.COMMITTED
        assert await engine.documents.fetch("docs", ["1"]) == {
            "1": {"_id": "1", "a": 1, "b": {"y": 2}, "c": None, "a.b": 3}
        }

    async def test_an_update_holds_if_what_it_expects_does(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        document = {"_id": "1", "a": 1, "b": {"x": [1, 2]}, "none": None, "text": "t"}
        await wrote(harness, engine, InsertNew("docs", document))
        held: list[dict[str, Any]] = [
            {},
            {"a": 1},
            {"b": {"x": [1, 2]}, "text": "t"},
            {"none": None},
            {"absent": None},
        ]
        for number, expect in enumerate(held):
            finish = await wrote(harness, engine, Update("docs", "1", {"n": number}, expect))
            assert finish.outcome is Outcome.COMMITTED, expect
            assert (await engine.documents.fetch("docs", ["1"]))["1"]["n"] == number

    async def test_an_update_is_lost_if_what_it_expects_does_not_hold(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        document = {"_id": "1", "a": 1, "b": {"x": [1, 2]}, "text": "1"}
        await wrote(harness, engine, InsertNew("docs", document))
        lost: list[dict[str, Any]] = [
            {"a": 2},
            {"a": None},
            {"a": "1"},
            {"text": 1},
            {"a": 1, "b": {"x": [2, 1]}},
            {"b": {}},
            {"absent": 1},
        ]
        for expect in lost:
            finish = await wrote(harness, engine, Update("docs", "1", {"n": 1}, expect))
            assert finish.outcome is Outcome.REFUSED, expect
            assert isinstance(finish.error, ConditionLostError)
            assert (finish.error.collection, finish.error.document) == ("docs", "1")
        assert await engine.documents.fetch("docs", ["1"]) == {"1": document}

    async def test_an_update_of_a_missing_document_says_which(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        for expect in (None, {"a": 1}, {"a": None}):
            finish = await wrote(harness, engine, Update("docs", "1", {"a": 1}, expect))
            assert finish.outcome is Outcome.REFUSED
            assert isinstance(finish.error, DocumentNotFoundError)
            assert (finish.error.collection, finish.error.missing) == ("docs", ("1",))
        assert list(await engine.documents.find("docs", {}, 10)) == []

    async def test_each_write_sees_those_before_it(self, harness: EngineHarness) -> None:
        engine = await opened(harness)
        writes: list[Write] = [
            InsertNew("docs", {"_id": "1", "status": "new", "n": 1}),
            Update("docs", "1", {"status": "old"}, {"status": "new"}),
            Increment("docs", "1", "n"),
            Update("docs", "1", {"status": "oldest"}, {"status": "old", "n": 2}),
        ]
        assert (await wrote(harness, engine, *writes)).outcome is Outcome.COMMITTED
        assert await engine.documents.fetch("docs", ["1"]) == {
            "1": {"_id": "1", "status": "oldest", "n": 2}
        }

    # Statements of the user's own

    async def test_a_body_that_raises_refuses_its_unit_and_no_other(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b", "c")
        error = ValueError("the body says no")
        refuses = body_for(harness, error=error)
        units = [
            unit(
                delivery,
                harness.clock.now(),
                writes=(Increment("docs", "counter", "n"),),
                bodies=(refuses,) if number == 1 else (),
            )
            for number, delivery in enumerate(await take(harness, engine, 3))
        ]
        finishes = await engine.finisher.finish(units)
        assert kinds(finishes) == [Outcome.COMMITTED, Outcome.REFUSED, Outcome.COMMITTED]
        assert finishes[1].error is error
        assert (await engine.documents.fetch("docs", ["counter"]))["counter"]["n"] == 2

    async def test_a_body_takes_effect_with_its_unit(self, harness: EngineHarness) -> None:
        harness.needs(Capability.OWN_TABLES)
        engine = await opened(harness)
        await publish(engine, "a", "b", "c", "d")
        units = [
            unit(
                delivery,
                harness.clock.now(),
                bodies=(
                    body_for(harness, f"{number} first"),
                    body_for(harness, f"{number} second"),
                ),
            )
            for number, delivery in enumerate(await take(harness, engine, 4))
        ]
        finishes = await engine.finisher.finish(units[:2])
        assert kinds(finishes) == [Outcome.COMMITTED, Outcome.COMMITTED]
        finishes = await engine.finisher.finish(units[2:])
        assert kinds(finishes) == [Outcome.COMMITTED, Outcome.COMMITTED]
        assert await harness.rows() == [
            f"{n} {row}" for n in range(4) for row in ("first", "second")
        ]

    async def test_what_a_body_did_goes_with_its_refused_unit(self, harness: EngineHarness) -> None:
        harness.needs(Capability.OWN_TABLES)
        engine = await opened(harness)
        await publish(engine, "a", "b", "c", "d")

        writes_and_refuses = body_for(harness, "by one that refuses", error=ValueError())
        writes = body_for(harness, "by one that does not")
        taken = await take(harness, engine, 4)
        now = harness.clock.now()
        units = [
            unit(taken[0], now, bodies=(writes,)),
            unit(taken[1], now, bodies=(writes, writes_and_refuses)),
            unit(taken[2], now, bodies=(writes,), writes=(Update("docs", "no", {"a": 1}),)),
            unit(taken[3], now, bodies=(writes,)),
        ]
        assert [str(kind) for kind in kinds(await engine.finisher.finish(units))] == [
            "committed",
            "refused",
            "refused",
            "committed",
        ]
        assert await harness.rows() == ["by one that does not"] * 2

    async def test_the_bodies_of_a_duplicate_and_of_a_lost_delivery_do_not_run(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await publish(engine, "a", "b")
        first, second = await take(harness, engine, 2)
        ran: list[str] = []
        now = harness.clock.now()
        bodies = [
            body_for(harness, calls=lambda: ran.append("first")),
            body_for(harness, calls=lambda: ran.append("second")),
        ]
        units = [
            unit(first, now, key="the same", bodies=(bodies[0],)),
            unit(second, now, key="the same", bodies=(bodies[1],)),
        ]
        await engine.finisher.finish(units)
        await engine.finisher.finish(units)
        assert ran == ["first"]

    async def test_a_unit_that_was_refused_can_be_given_better_writes(
        self, harness: EngineHarness
    ) -> None:
        engine = await opened(harness)
        await wrote(harness, engine, InsertNew("docs", {"_id": "1", "n": 1}))
        await publish(engine, "a")
        delivery = await take_one(harness, engine)
        for expected, outcome in ((0, Outcome.REFUSED), (1, Outcome.COMMITTED)):
            writes = (Update("docs", "1", {"n": 2}, {"n": expected}),)
            again = unit(delivery, harness.clock.now(), writes=writes)
            assert kinds(await engine.finisher.finish([again])) == [outcome]
        assert (await engine.documents.fetch("docs", ["1"]))["1"]["n"] == 2
