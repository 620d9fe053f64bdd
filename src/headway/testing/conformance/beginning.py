"""What all documents do when operations begin to work on them."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from headway.core.beginning import Beginning, Begun, How, sweep_operation
from headway.core.document import (
    ATTEMPT_COUNT,
    LAST_ATTEMPT_TIME,
    LAST_OPERATION,
    LEASE_TOKEN,
    LEASE_UNTIL,
    STATUS,
    SWEEP_GENERATION,
    WAITING,
)
from headway.core.errors import ConditionLostError
from headway.core.lifecycle import Lifecycle
from headway.core.sweep import Leave, Requeue, SweepRule, Why, judge
from headway.core.writes import InsertNew, Update
from headway.ports.engine import Engine
from headway.testing.conformance.examples import opened, wrote
from headway.testing.conformance.harness import Capability, EngineHarness


def time_of(value: Any) -> datetime:
    """Read a time, in whichever way the store keeps it."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


async def holding(harness: EngineHarness, *documents: dict[str, Any]) -> Engine:
    """Give an engine with these documents in the collection `docs`."""
    engine = await opened(harness)
    await wrote(harness, engine, *(InsertNew("docs", document) for document in documents))
    return engine


DOCS = Lifecycle("docs")
MINIMUM_LEASE = timedelta(seconds=1)
TICK = timedelta(milliseconds=2)
"""Some stores keep no more than milliseconds."""


async def begin(
    harness: EngineHarness,
    engine: Engine,
    ids: Sequence[str],
    operation: str,
    lifecycle: Lifecycle = DOCS,
    **more: Any,
) -> Mapping[str, Begun]:
    """Let one operation begin."""
    given = {"now": harness.clock.now().replace(microsecond=0), **more}
    beginning = Beginning(lifecycle=lifecycle, ids=tuple(ids), operation=operation, **given)
    (answer,) = await engine.documents.begin([beginning])
    return answer


class BeginningConformance:
    """Counting attempts, and leases."""

    async def test_beginning_counts_an_attempt(self, harness: EngineHarness) -> None:
        engine = await holding(harness, {"_id": "1", "own": [1]}, {"_id": "2"}, {"_id": "3"})
        now = harness.clock.now().replace(microsecond=0)
        begun = await begin(harness, engine, ["1", "2", "nobody"], "a", now=now)
        assert set(begun) == {"1", "2"}
        for answer in begun.values():
            assert answer.how is How.BEGUN
            assert answer.document[ATTEMPT_COUNT] == 1
            assert answer.document[LAST_OPERATION] == "a"
            assert time_of(answer.document[LAST_ATTEMPT_TIME]) == now
        stored = await engine.documents.fetch("docs", ["1", "2", "3", "nobody"])
        assert stored == {
            "1": begun["1"].document, "2": begun["2"].document, "3": {"_id": "3"}
        }  # fmt: skip
        assert stored["1"]["own"] == [1]

    async def test_an_operation_is_counted_once(self, harness: EngineHarness) -> None:
        engine = await holding(harness, {"_id": "1"}, {"_id": "2", ATTEMPT_COUNT: None})
        other = await opened(harness)
        counts = []
        for operation in ("a", "a", "b", "b", "a"):
            now = harness.clock.now().replace(microsecond=0)
            begun = await begin(harness, other, ["1", "2"], operation, now=now)
            documents = [begun[each].document for each in ("1", "2")]
            assert {each[LAST_OPERATION] for each in documents} == {operation}
            assert time_of(documents[0][LAST_ATTEMPT_TIME]) == now
            counts.append([each[ATTEMPT_COUNT] for each in documents])
            await harness.pass_time(harness.moment)
        assert counts == [[1, 1], [1, 1], [2, 2], [2, 2], [3, 3]]
        assert (await engine.documents.fetch("docs", ["1"]))["1"][ATTEMPT_COUNT] == 3

    async def test_an_operation_is_counted_once_even_if_begun_by_many(
        self, harness: EngineHarness
    ) -> None:
        engines = [await holding(harness, {"_id": "1"}), await opened(harness)]
        await asyncio.gather(
            *(begin(harness, e, ["1", "1"], "a") for e in engines for _ in range(3))
        )
        assert (await engines[0].documents.fetch("docs", ["1"]))["1"][ATTEMPT_COUNT] == 1

    async def test_operations_that_begin_at_once_are_all_counted(
        self, harness: EngineHarness
    ) -> None:
        engines = [await holding(harness, {"_id": "1"}, {"_id": "2"}), await opened(harness)]
        now = harness.clock.now()

        patient = Lifecycle("docs", max_attempts=100)

        def beginning(operation: str, *ids: str) -> Beginning:
            return Beginning(lifecycle=patient, ids=ids, operation=operation, now=now)

        await asyncio.gather(
            *(
                each.documents.begin(
                    [beginning(f"{n}/{m}", "1", "2") for m in range(5)] + [beginning("x", "2")]
                )
                for n, each in enumerate(engines)
            )
        )
        stored = await engines[0].documents.fetch("docs", ["1", "2"])
        assert stored["1"][ATTEMPT_COUNT] == 10
        # Between the others `x` may come twice as somebody else's successor, or once as its own.
        assert stored["2"][ATTEMPT_COUNT] in {11, 12}

    async def test_beginnings_of_one_call_are_answered_in_order(
        self, harness: EngineHarness
    ) -> None:
        engine = await holding(harness, {"_id": "1"})
        now = harness.clock.now()
        answers = await engine.documents.begin(
            [
                Beginning(lifecycle=DOCS, ids=("1",), operation="a", now=now),
                Beginning(lifecycle=Lifecycle("no such"), ids=("1",), operation="a", now=now),
                Beginning(lifecycle=DOCS, ids=("1",), operation="b", now=now),
                Beginning(lifecycle=DOCS, ids=("1",), operation="a", now=now, again=True),
            ]
        )
        assert [{k: v.document[ATTEMPT_COUNT] for k, v in each.items()} for each in answers] == [
            {"1": 1}, {}, {"1": 2}, {"1": 2}
        ]  # fmt: skip
        assert list(await engine.documents.begin([])) == []

    async def test_processed_documents_stay_untouched(self, harness: EngineHarness) -> None:
        processed = {"_id": "1", "status": "processed", ATTEMPT_COUNT: 2, LAST_OPERATION: "x"}
        engine = await holding(harness, processed, {"_id": "2", "status": "failed"})
        begun = await begin(harness, engine, ["1", "2"], "a")
        assert (begun["1"].how, begun["1"].document) == (How.OVER, processed)
        assert begun["2"].document[ATTEMPT_COUNT] == 1
        assert begun["2"].document[STATUS] == "pending"
        assert (await engine.documents.fetch("docs", ["1"]))["1"] == processed
        reset = Update("docs", "1", {"status": "pending"}, {"status": "processed"})
        await wrote(harness, engine, reset)
        begun = await begin(harness, engine, ["1"], "a")
        assert begun["1"].document[ATTEMPT_COUNT] == 3

    async def test_what_a_flag_says_goes_before_the_status(self, harness: EngineHarness) -> None:
        lifecycle = Lifecycle("docs", flag="embedded")
        engine = await holding(
            harness, {"_id": "1", "embedded": True, STATUS: "pending"}, {"_id": "2"}
        )
        begun = await begin(harness, engine, ["1", "2"], "a", lifecycle)
        assert {one: answer.how for one, answer in begun.items()} == {
            "1": How.OVER, "2": How.BEGUN
        }  # fmt: skip

    async def test_what_a_sweep_has_overtaken_is_over(self, harness: EngineHarness) -> None:
        engine = await holding(harness, {"_id": "1", SWEEP_GENERATION: 2, LAST_OPERATION: "s"})
        for operation in ("a", sweep_operation("docs", "1", 1)):
            assert (await begin(harness, engine, ["1"], operation))["1"].how is How.OVER
        newest = await begin(harness, engine, ["1"], sweep_operation("docs", "1", 2))
        assert newest["1"].how is How.BEGUN
        deliberate = await begin(harness, engine, ["1"], "a", deliberate=True)
        assert deliberate["1"].how is How.BEGUN

    async def test_what_has_had_all_its_attempts_is_over(self, harness: EngineHarness) -> None:
        spent = {"_id": "1", STATUS: "failed", ATTEMPT_COUNT: 3, LAST_OPERATION: "c"}
        engine = await holding(harness, spent)
        late = await begin(harness, engine, ["1"], "d")
        assert (late["1"].how, late["1"].document) == (How.OVER, spent)
        same = await begin(harness, engine, ["1"], "c")
        assert (same["1"].how, same["1"].document[ATTEMPT_COUNT]) == (How.BEGUN, 3)
        deliberate = await begin(harness, engine, ["1"], "d", deliberate=True)
        assert (deliberate["1"].how, deliberate["1"].document[ATTEMPT_COUNT]) == (How.BEGUN, 4)
        await wrote(harness, engine, Update("docs", "1", {STATUS: "failed_max_retries"}))
        given_up = await begin(harness, engine, ["1"], "d")
        assert given_up["1"].how is How.OVER

    async def test_what_others_say_in_a_status_is_left_alone(self, harness: EngineHarness) -> None:
        theirs: list[dict[str, Any]] = [
            {"_id": "1", STATUS: "cancelled"}, {"_id": "2", STATUS: ["odd"]}
        ]  # fmt: skip
        engine = await holding(harness, *theirs, {"_id": "3"})
        lifecycle = Lifecycle("docs", lease=MINIMUM_LEASE)
        begun = await begin(harness, engine, ["1", "2", "3"], "a", lifecycle, token="ours")
        hows = [begun[one].how for one in ("1", "2", "3")]
        assert hows == [How.FOREIGN, How.FOREIGN, How.BEGUN]
        stored = await engine.documents.fetch("docs", ["1", "2"])
        assert [stored["1"], stored["2"]] == theirs

    # Leases

    async def test_who_has_to_wait_for_one_document_begins_with_none(
        self, harness: EngineHarness
    ) -> None:
        lifecycle = Lifecycle("docs", lease=max(harness.moment * 10, MINIMUM_LEASE))
        engine = await holding(harness, {"_id": "1"}, {"_id": "2"}, {"_id": "3"})
        now = harness.clock.now().replace(microsecond=0)

        def beginning(operation: str, *ids: str) -> Beginning:
            return Beginning(
                lifecycle=lifecycle, ids=ids, operation=operation, now=now, token=operation
            )

        first, both, last = await engine.documents.begin(
            [beginning("a", "2"), beginning("b", "1", "2", "3"), beginning("c", "3")]
        )
        assert (first["2"].how, last["3"].how) == (How.BEGUN, How.BEGUN)
        hows = {one: answer.how for one, answer in both.items()}
        assert hows == {"1": How.WAITS, "2": How.BUSY, "3": How.WAITS}
        stored = await engine.documents.fetch("docs", ["1", "2", "3"])
        assert stored["1"] == {"_id": "1"}
        assert [stored[one][LAST_OPERATION] for one in ("2", "3")] == ["a", "c"]
        assert stored["3"][ATTEMPT_COUNT] == 1

    async def test_nobody_waits_for_a_lease_that_ends_in_years(
        self, harness: EngineHarness
    ) -> None:
        far = {"_id": "1", LEASE_TOKEN: "theirs", LEASE_UNTIL: "2099-01-01T00:00:00Z"}
        engine = await holding(harness, far)
        lifecycle = Lifecycle("docs", lease=MINIMUM_LEASE)
        begun = await begin(harness, engine, ["1"], "a", lifecycle, token="ours")
        assert (begun["1"].how, begun["1"].document[LEASE_TOKEN]) == (How.BEGUN, "ours")

    async def test_what_is_left_to_its_event_is_free_for_it(self, harness: EngineHarness) -> None:
        lifecycle = Lifecycle("docs", lease=MINIMUM_LEASE)
        engine = await holding(harness, {"_id": "1"}, {"_id": "2"})
        now = harness.clock.now().replace(microsecond=0)
        await begin(harness, engine, ["1", "2"], "a", lifecycle, token="ours", now=now)
        until = now + MINIMUM_LEASE * 600
        tokens = {"1": "ours", "2": "others", "3": "ours"}
        assert await engine.documents.leave("docs", tokens, until) == 1
        assert await engine.documents.leave("docs", {}, until) == 0
        stored = await engine.documents.fetch("docs", ["1", "2"])
        assert [stored[one][LEASE_TOKEN] for one in ("1", "2")] == [WAITING, "ours"]
        assert time_of(stored["1"][LEASE_UNTIL]) == until
        assert await engine.documents.renew("docs", {"1": "ours"}, now) == 0
        rule = SweepRule(lifecycle=lifecycle, base_delay=timedelta(seconds=1))
        assert judge(stored["1"], rule, until - TICK) == Leave(Why.LEASED)
        assert isinstance(judge(stored["1"], rule, until), Requeue)
        again = await begin(harness, engine, ["1"], "a", lifecycle, token="others", now=now)
        assert again["1"].how is How.BEGUN
        assert again["1"].document[ATTEMPT_COUNT] == 1

    async def test_a_lease_keeps_others_out_until_it_ends(self, harness: EngineHarness) -> None:
        lifecycle = Lifecycle("docs", lease=max(harness.moment * 10, MINIMUM_LEASE))
        assert lifecycle.lease is not None
        engine = await holding(harness, {"_id": "1"})
        start = harness.clock.now()

        async def how(token: str, now: datetime) -> How:
            begun = await begin(harness, engine, ["1"], token, lifecycle, token=token, now=now)
            return begun["1"].how

        assert await how("ours", start) is How.BEGUN
        assert await how("others", start) is How.BUSY
        assert await how("ours", start) is How.BEGUN
        stored = (await engine.documents.fetch("docs", ["1"]))["1"]
        assert (stored[LEASE_TOKEN], stored[ATTEMPT_COUNT]) == ("ours", 1)
        later = start + lifecycle.lease
        assert await engine.documents.renew("docs", {"1": "ours"}, later + lifecycle.lease) == 1
        assert await engine.documents.renew("docs", {"1": "others", "2": "ours"}, start) == 0
        assert await how("others", later) is How.BUSY
        stored = (await engine.documents.fetch("docs", ["1"]))["1"]
        assert abs(time_of(stored[LEASE_UNTIL]) - (later + lifecycle.lease)) < TICK
        assert await how("others", later + lifecycle.lease) is How.BEGUN
        assert await engine.documents.renew("docs", {"1": "ours"}, later) == 0

    async def test_whoever_lost_a_lease_cannot_commit(self, harness: EngineHarness) -> None:
        harness.needs(Capability.RECORDS)
        lifecycle = Lifecycle("docs", lease=MINIMUM_LEASE)
        engine = await holding(harness, {"_id": "1"})
        await begin(harness, engine, ["1"], "a", lifecycle, token="ours")
        later = harness.clock.now() + MINIMUM_LEASE * 2
        await begin(harness, engine, ["1"], "b", lifecycle, token="others", now=later)
        done = Update("docs", "1", lifecycle.on_success(), {LEASE_TOKEN: "ours"})
        finish = await wrote(harness, engine, done)
        assert isinstance(finish.error, ConditionLostError)
        assert finish.error.field == LEASE_TOKEN
        assert (await engine.documents.fetch("docs", ["1"]))["1"][LEASE_TOKEN] == "others"
