"""How claims end in every store: by their own token, by being given back, or by giving up."""

import asyncio

from headway.core.beginning import How
from headway.core.sweep import given_up
from headway.core.travel import instant
from headway.core.writes import Document, Update
from headway.ports.candidates import View
from headway.testing.conformance.beginning import begin
from headway.testing.conformance.examples import opened, wrote
from headway.testing.conformance.harness import EngineHarness
from headway.testing.conformance.stuck import (
    CLAIM_LEASE,
    MINUTE,
    RULE,
    claim_of,
    comparable,
    in_full,
    old,
    scanned,
    stored,
    stuck,
    sweeping,
    whole_second,
)


class ClaimEndsConformance:
    """What was claimed is published, given back, or taken over by somebody else."""

    async def test_a_claim_that_came_to_no_end_is_taken_over_under_the_same_operation(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, in_full(harness, "1"))
        before = await stored(engine, "1")
        claims = [claim_of(each, now) for each in await scanned(candidates, View.UNMOVED, now)]
        await candidates.claim(RULE, claims, "died", now, CLAIM_LEASE)
        later = now + CLAIM_LEASE
        again = [
            claim_of(each, later) for each in await scanned(candidates, View.CLAIM_OVER, later)
        ]
        assert [claim.requeue.again for claim in again] == [True]
        other = sweeping(await opened(harness)).candidates
        answers = await asyncio.gather(
            candidates.claim(RULE, again, "a", later, CLAIM_LEASE),
            other.claim(RULE, again, "b", later, CLAIM_LEASE),
        )
        assert sorted(len(answer) for answer in answers) == [0, 1]
        token = "a" if answers[0] else "b"
        after = await stored(engine, "1")
        assert (after["claimToken"], after["claimUntil"]) == (token, later + CLAIM_LEASE)
        assert (after["attemptCount"], after["sweepGeneration"]) == (2, 4)
        assert after["lastOperation"] == claims[0].requeue.operation
        assert after["lastOperation"] == again[0].requeue.operation
        await candidates.give_back(RULE, ["1"], "died")
        assert await stored(engine, "1") == after
        await candidates.give_back(RULE, ["1"], token)
        assert await stored(engine, "1") == {**before, "sweepGeneration": 4}

    async def test_a_claim_whose_event_is_stored_is_let_go_by_its_token_alone(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, old(now))
        claims = [claim_of(each, now) for each in await scanned(candidates, View.UNMOVED, now)]
        await candidates.claim(RULE, claims, "t", now, CLAIM_LEASE)
        before = await stored(engine, "1")
        await candidates.published(RULE, ["1", "nobody"], "another")
        assert await stored(engine, "1") == before
        for _ in range(2):
            await candidates.published(RULE, ["1", "nobody"], "t")
            after = await stored(engine, "1")
            assert not {"claimToken", "claimUntil", "claimBefore"} & set(after)
            assert {**before, **after} == before
            await candidates.give_back(RULE, ["1"], "t")

    async def test_giving_back_restores_what_was_there_by_the_token_alone(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        bare: Document = {"_id": "bare"}
        engine, candidates = await stuck(
            harness, in_full(harness, "full"), bare, old(now, "failed", status="failed")
        )
        for view, ids in ((View.UNMOVED, ("full", "bare")), (View.FAILED, ("failed",))):
            before = {one: await stored(engine, one) for one in ids}
            claims = [claim_of(each, now) for each in await scanned(candidates, view, now)]
            await candidates.claim(RULE, claims, "t", now, CLAIM_LEASE)
            claimed_now = {one: await stored(engine, one) for one in ids}
            await candidates.give_back(RULE, ids, "another")
            assert {one: await stored(engine, one) for one in ids} == claimed_now
            await candidates.give_back(RULE, [*ids, "nobody"], "t")
            for one in ids:
                generation = before[one].get("sweepGeneration", 0) + 1
                assert await stored(engine, one) == {**before[one], "sweepGeneration": generation}

    async def test_what_was_settled_or_scheduled_since_a_claim_stays_so(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        documents = [old(now, one, retryAt=None) for one in ("done", "failed", "later", "left")]
        engine, candidates = await stuck(harness, *documents)
        claims = [claim_of(each, now) for each in await scanned(candidates, View.UNMOVED, now)]
        assert len(await candidates.claim(RULE, claims, "t", now, CLAIM_LEASE)) == len(documents)
        later = instant(now + MINUTE)
        await wrote(
            harness,
            engine,
            Update("docs", "done", {"status": "processed"}),
            Update("docs", "failed", {"status": "failed"}),
            Update("docs", "later", {"retryAt": later}),
        )
        await candidates.give_back(RULE, ["done", "failed", "later", "left"], "t")
        after = {one: await stored(engine, one) for one in ("done", "failed", "later", "left")}
        assert {one: (each["status"], each["attemptCount"]) for one, each in after.items()} == {
            "done": ("processed", 2), "failed": ("failed", 2),
            "later": ("pending", 1), "left": ("pending", 1),
        }  # fmt: skip
        assert after["later"]["retryAt"] == comparable({"retryAt": later})["retryAt"]
        assert after["left"].get("retryAt") is None
        assert {each.get("claimToken") for each in after.values()} == {None}

    async def test_where_a_worker_has_begun_nothing_is_given_back(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, old(now))
        (claim,) = [claim_of(each, now) for each in await scanned(candidates, View.UNMOVED, now)]
        await candidates.claim(RULE, [claim], "t", now, CLAIM_LEASE)
        begun = await begin(harness, engine, ["1"], claim.requeue.operation, now=now + MINUTE)
        assert begun["1"].how is How.BEGUN
        before = await stored(engine, "1")
        assert (before["attemptCount"], before["sweepGeneration"]) == (2, 1)
        await candidates.published(RULE, ["1"], "t")
        await candidates.give_back(RULE, ["1"], "t")
        assert await stored(engine, "1") == before

    async def test_what_is_given_up_says_so(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, in_full(harness, "1"))
        (document,) = await scanned(candidates, View.UNMOVED, now)
        assert await candidates.give_up(RULE, [document], now) == {"1"}
        expected = comparable({**document, **given_up(RULE, now)})
        assert await stored(engine, "1") == expected
        assert await candidates.give_up(RULE, [document], now) == frozenset()
        for view in View:
            assert await scanned(candidates, view, now) == []
