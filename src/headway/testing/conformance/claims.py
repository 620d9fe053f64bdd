"""What every store does with claims: they take only what is as it was read."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from headway.core.beginning import How, sweep_operation
from headway.core.sweep import claimed
from headway.core.travel import instant
from headway.core.writes import Document, Update
from headway.ports.candidates import View
from headway.ports.engine import Engine
from headway.testing.conformance.beginning import begin
from headway.testing.conformance.examples import opened, wrote
from headway.testing.conformance.harness import EngineHarness
from headway.testing.conformance.stuck import (
    CLAIM_LEASE,
    FLAGGED,
    HARD_IDS,
    NOT_COUNTS,
    RULE,
    UNREADABLE,
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

CHANGES: tuple[tuple[str, Any], ...] = (
    ("status", "failed"),
    ("status", None),
    ("attemptCount", 2),
    ("attemptCount", None),
    ("lastAttemptTime", timedelta(days=-2, milliseconds=1)),
    ("lastAttemptTime", None),
    ("lastOperation", "another"),
    ("lastOperation", None),
    ("leaseToken", "another"),
    ("leaseToken", None),
    ("leaseUntil", timedelta(hours=1)),
    ("leaseUntil", None),
    ("claimToken", "another"),
    ("claimUntil", timedelta(hours=1)),
    ("sweepGeneration", 4),
    ("sweepGeneration", None),
    ("retryAt", timedelta(hours=1)),
    ("retryAt", None),
)
"""What may happen to a document between being read and being claimed; times count from now."""


async def changed_meanwhile(
    harness: EngineHarness, engine: Engine, one: str, field: str, value: Any
) -> Document:
    """Let somebody else change one field; give the document as it is then."""
    if isinstance(value, timedelta):
        value = instant(whole_second(harness) + value)
    await wrote(harness, engine, Update("docs", one, {field: value}))
    return await stored(engine, one)


class ClaimsConformance:
    """Of all who want to change a document, one has its way."""

    async def test_a_claim_counts_the_attempt_and_bears_its_token(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, in_full(harness, "1"), old(now, "2"))
        documents = await scanned(candidates, View.UNMOVED, now)
        claims = [claim_of(each, now) for each in documents if each["_id"] == "1"]
        assert await candidates.claim(RULE, claims, "t", now, CLAIM_LEASE) == {"1"}
        document, requeue = claims[0].document, claims[0].requeue
        until = now + CLAIM_LEASE
        changes = claimed(document, requeue, token="t", until=until, now=now)
        after = await stored(engine, "1")
        assert after == comparable({**document, **changes})
        assert (after["attemptCount"], after["sweepGeneration"]) == (2, 4)
        assert after["lastOperation"] == sweep_operation("docs", "1", 4, now)
        assert await stored(engine, "2") == comparable(old(now, "2"))

    async def test_a_claim_leaves_alone_what_it_does_not_watch(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, old(now, own=1))
        claims = [claim_of(each, now) for each in await scanned(candidates, View.UNMOVED, now)]
        await wrote(harness, engine, Update("docs", "1", {"own": 2, "new": {"a.b": None}}))
        assert await candidates.claim(RULE, claims, "t", now, CLAIM_LEASE) == {"1"}
        after = await stored(engine, "1")
        assert (after["own"], after["new"]) == (2, {"a.b": None})
        await wrote(harness, engine, Update("docs", "1", {"own": 3}))
        await candidates.give_back(RULE, ["1"], "t")
        after = await stored(engine, "1")
        assert (after["own"], after["new"]) == (3, {"a.b": None})

    @pytest.mark.parametrize(("field", "value"), CHANGES)
    async def test_what_changed_since_it_was_read_is_not_claimed(
        self, harness: EngineHarness, field: str, value: Any
    ) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, in_full(harness, "1"), in_full(harness, "2"))
        claims = [claim_of(each, now) for each in await scanned(candidates, View.UNMOVED, now)]
        before = await changed_meanwhile(harness, engine, "1", field, value)
        assert await candidates.claim(RULE, claims, "t", now, CLAIM_LEASE) == {"2"}
        assert await stored(engine, "1") == before

    @pytest.mark.parametrize(("field", "value"), CHANGES)
    async def test_what_changed_since_it_was_read_is_not_given_up(
        self, harness: EngineHarness, field: str, value: Any
    ) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, in_full(harness, "1"), in_full(harness, "2"))
        documents = await scanned(candidates, View.UNMOVED, now)
        before = await changed_meanwhile(harness, engine, "1", field, value)
        assert await candidates.give_up(RULE, documents, now) == {"2"}
        assert await stored(engine, "1") == before

    async def test_what_was_processed_since_it_was_read_by_its_flag_stays(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        documents = [old(now, one, embedded=False) for one in ("1", "2", "3", "4")]
        engine, candidates = await stuck(harness, *documents, rule=FLAGGED)
        found = await scanned(candidates, View.UNMOVED, now, FLAGGED)
        for one in ("1", "3"):
            await wrote(harness, engine, Update("docs", one, {"embedded": True}))
        claims = [claim_of(each, now, FLAGGED) for each in found if each["_id"] in {"1", "2"}]
        assert await candidates.claim(FLAGGED, claims, "t", now, CLAIM_LEASE) == {"2"}
        hopeless = [each for each in found if each["_id"] in {"3", "4"}]
        assert await candidates.give_up(FLAGGED, hopeless, now) == {"4"}

    async def test_what_is_gone_is_neither_claimed_nor_given_up(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, old(now, "1"), old(now, "2"))
        documents = await scanned(candidates, View.UNMOVED, now)
        gone = [each for each in documents if each["_id"] == "1"]
        await sweeping(engine).desk.remove("docs", gone)
        claims = [claim_of(each, now) for each in documents]
        assert await candidates.claim(RULE, claims, "t", now, CLAIM_LEASE) == {"2"}
        assert await candidates.give_up(RULE, gone, now) == frozenset()
        await candidates.published(RULE, ["1"], "t")
        await candidates.give_back(RULE, ["1"], "t")
        assert not await engine.documents.fetch("docs", ["1"])

    async def test_of_two_who_claim_at_once_each_document_has_one(
        self, harness: EngineHarness
    ) -> None:
        now = whole_second(harness)
        ids = [f"{n}" for n in range(60)]
        engine, first = await stuck(harness, *(old(now, one) for one in ids))
        second = sweeping(await opened(harness)).candidates
        claims = [claim_of(each, now) for each in await scanned(first, View.UNMOVED, now)]
        parts = [claims[start : start + 10] for start in range(0, 60, 10)]
        turns = [(first, "a", part) for part in parts]
        turns += [(second, "b", part[::-1]) for part in reversed(parts)]
        answers = await asyncio.gather(
            *(each.claim(RULE, part, token, now, CLAIM_LEASE) for each, token, part in turns)
        )
        won = [(one, turns[n][1]) for n, answer in enumerate(answers) for one in answer]
        assert sorted(one for one, _ in won) == sorted(ids)
        for one, token in won:
            after = await stored(engine, one)
            assert (after["claimToken"], after["attemptCount"]) == (token, 2)

    async def test_either_a_worker_begins_or_a_sweeper_claims(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        ids = [f"{n}" for n in range(20)]
        engine, candidates = await stuck(harness, *(old(now, one) for one in ids))
        worker = await opened(harness)
        claims = [claim_of(each, now) for each in await scanned(candidates, View.UNMOVED, now)]

        async def beginning(those: list[str]) -> list[str]:
            """Begin with each, as events do that were long on their way."""
            answers = [await begin(harness, worker, [one], f"late {one}") for one in those]
            return [one for each in answers for one in each if each[one].how is How.BEGUN]

        early, claimed_ids, late = await asyncio.gather(
            beginning(ids[:10]),
            candidates.claim(RULE, claims, "t", now, CLAIM_LEASE),
            beginning(ids[10:]),
        )
        begun = {*early, *late}
        assert begun | claimed_ids == set(ids)
        assert begun & claimed_ids == set()
        for one in ids:
            assert (await stored(engine, one))["attemptCount"] == 2

    async def test_a_claimed_document_may_have_any_id(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, *(old(now, one) for one in HARD_IDS))
        documents = await scanned(candidates, View.UNMOVED, now, page=3)
        assert {each["_id"] for each in documents} == set(HARD_IDS)
        claims = [claim_of(each, now) for each in documents]
        assert await candidates.claim(RULE, claims, "it's", now, CLAIM_LEASE) == set(HARD_IDS)
        await candidates.published(RULE, HARD_IDS[:4], "it's")
        await candidates.give_back(RULE, HARD_IDS[4:], "it's")
        found = await engine.documents.fetch("docs", HARD_IDS)
        counts = [found[one]["attemptCount"] for one in HARD_IDS]
        assert counts == [2] * 4 + [1] * 4
        assert {found[one].get("claimToken") for one in HARD_IDS} == {None}
        assert await candidates.give_up(RULE, list(found.values()), now) == set(HARD_IDS)

    async def test_whatever_others_wrote_can_be_claimed(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        written: list[Any] = [*UNREADABLE.values(), *NOT_COUNTS]
        documents = [
            old(now, f"{field} {n}", **{field: value})
            for field in ("attemptCount", "lastAttemptTime", "lastOperation", "sweepGeneration")
            for n, value in enumerate(written)
            if field != "attemptCount" or value in NOT_COUNTS
        ]
        engine, candidates = await stuck(harness, *documents)
        found = await scanned(candidates, View.UNMOVED, now, page=10)
        claims = [claim_of(each, now) for each in found]
        ids = {claim.document["_id"] for claim in claims}
        assert ids == {each["_id"] for each in documents}
        assert await candidates.claim(RULE, claims, "t", now, CLAIM_LEASE) == ids
        await candidates.give_back(RULE, sorted(ids), "t")
        after = await engine.documents.fetch("docs", sorted(ids))
        for document in documents:
            restored = {**comparable(after[document["_id"]]), "sweepGeneration": 0}
            assert restored == {**comparable(document), "sweepGeneration": 0}

    async def test_thousands_are_claimed_at_once(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        ids = {f"{n:04}" for n in range(2_000)}
        engine, candidates = await stuck(harness, *(old(now, one) for one in sorted(ids)))
        found = await scanned(candidates, View.UNMOVED, now, page=600)
        claims = [claim_of(each, now) for each in found]
        changed = found[1_000]["_id"]
        await wrote(harness, engine, Update("docs", changed, {"status": "processed"}))
        won = await candidates.claim(RULE, claims, "t", now, CLAIM_LEASE)
        assert won == ids - {changed}
        await candidates.published(RULE, sorted(won), "t")
        after = (await engine.documents.fetch("docs", sorted(won))).values()
        assert {(each["attemptCount"], each.get("claimToken")) for each in after} == {(2, None)}
        assert await candidates.give_up(RULE, list(after), now) == won

    async def test_where_nothing_is_given_nothing_happens(self, harness: EngineHarness) -> None:
        now = whole_second(harness)
        engine, candidates = await stuck(harness, old(now))
        assert await candidates.claim(RULE, [], "t", now, CLAIM_LEASE) == frozenset()
        assert await candidates.give_up(RULE, [], now) == frozenset()
        await candidates.published(RULE, [], "t")
        await candidates.give_back(RULE, [], "t")
        assert await stored(engine, "1") == comparable(old(now))
