"""What every store does with a document that another program keeps locked: go past it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from headway.core.beginning import Beginning, How
from headway.core.catalogue import TRANSACTION_CLASSIFIER
from headway.core.document import LEASE_UNTIL, moment
from headway.core.lifecycle import Lifecycle
from headway.core.writes import Update
from headway.ports.candidates import View
from headway.ports.commit import Outcome
from headway.testing.conformance.beginning import begin, holding
from headway.testing.conformance.examples import publish, take, unit
from headway.testing.conformance.harness import Capability, EngineHarness
from headway.testing.conformance.stuck import (
    CLAIM_LEASE,
    RULE,
    claim_of,
    old,
    scanned,
    stored,
    stuck,
    whole_second,
)

_BOUND_SECONDS = 10
"""Within which everything here has to end; a transaction may stay open for a minute and more."""
_LEASED = Lifecycle("docs", lease=timedelta(minutes=1))


@asynccontextmanager
async def _locking(
    harness: EngineHarness, one: str, seconds: float = _BOUND_SECONDS
) -> AsyncIterator[None]:
    async with harness.locking("docs", one), asyncio.timeout(seconds):
        yield


class LockedConformance:
    """One document is locked for long, and all the others are done."""

    async def test_a_sweep_goes_past_what_is_locked(self, harness: EngineHarness) -> None:
        harness.needs(Capability.LOCKS)
        now = whole_second(harness)
        ids = [f"{number:03}" for number in range(40)]
        engine, candidates = await stuck(harness, *(old(now, one) for one in ids))
        documents = await scanned(candidates, View.UNMOVED, now)
        claims = [claim_of(document, now) for document in documents]
        async with _locking(harness, "017"):
            won = await candidates.claim(RULE, claims, "ours", now, CLAIM_LEASE)
        assert won == {*ids} - {"017"}
        assert (await stored(engine, "016"))["claimToken"] == "ours"
        assert (await stored(engine, "017")).get("claimToken") is None
        async with _locking(harness, "018"):
            await candidates.give_back(RULE, ["016", "018"], "ours")
            await candidates.published(RULE, sorted(won), "ours")
        assert [one for one in ids if (await stored(engine, one)).get("claimToken")] == ["018"]
        assert (await stored(engine, "016"))["attemptCount"] == 1
        assert (await stored(engine, "019"))["attemptCount"] == 2

    async def test_what_is_locked_is_not_given_up_and_the_others_are(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.LOCKS)
        now = whole_second(harness)
        engine, candidates = await stuck(harness, *(old(now, one) for one in "abc"))
        documents = await scanned(candidates, View.UNMOVED, now)
        async with _locking(harness, "b"):
            assert await candidates.give_up(RULE, documents, now) == {"a", "c"}
        assert (await stored(engine, "b"))["status"] == "pending"

    async def test_an_operation_waits_for_what_is_locked_and_the_others_begin(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.LOCKS)
        engine = await holding(harness, *({"_id": one} for one in "abcd"))
        now = whole_second(harness)
        beginnings = [
            Beginning(lifecycle=_LEASED, ids=ids, operation=ids[0], now=now, token=ids[0])
            for ids in (("a",), ("b", "c"), ("d", "nobody"))
        ]
        async with _locking(harness, "c"):
            first, second, third = await engine.documents.begin(beginnings)
        assert {one: answer.how for one, answer in first.items()} == {"a": How.BEGUN}
        assert {one: answer.how for one, answer in third.items()} == {"d": How.BEGUN}
        assert How.BUSY in {answer.how for answer in second.values()}
        assert How.BEGUN not in {answer.how for answer in second.values()}
        for answer in second.values():
            if answer.how is How.BUSY:
                until = moment(answer.document[LEASE_UNTIL])
                assert until is not None
                assert now < until <= now + timedelta(minutes=1)
        assert "attemptCount" not in await stored(engine, "b")
        assert (await stored(engine, "d"))["attemptCount"] == 1
        again = await begin(harness, engine, ["b", "c"], "b", _LEASED, token="b", now=now)
        assert {answer.how for answer in again.values()} == {How.BEGUN}

    async def test_a_moment_is_waited_for(self, harness: EngineHarness) -> None:
        harness.needs(Capability.LOCKS)
        engine = await holding(harness, {"_id": "a"})
        async with asyncio.timeout(_BOUND_SECONDS), harness.locking("docs", "a"):
            beginning = asyncio.create_task(begin(harness, engine, ["a"], "op"))
            await harness.pass_time(harness.moment)
        assert (await beginning)["a"].how is How.BEGUN

    async def test_what_writes_to_a_locked_document_is_refused_and_the_others_are_committed(
        self, harness: EngineHarness
    ) -> None:
        harness.needs(Capability.LOCKS)
        engine = await holding(harness, *({"_id": one} for one in "abc"))
        await publish(engine, *"abc")
        deliveries = await take(harness, engine, 3)
        now = whole_second(harness)
        units = [
            unit(each, now, writes=(Update("docs", each.travel.operation, {"done": True}),))
            for each in deliveries
        ]
        async with _locking(harness, "b", 3 * _BOUND_SECONDS):
            finishes = await engine.finisher.finish(units)
        committed, refused = Outcome.COMMITTED, Outcome.REFUSED
        assert [finish.outcome for finish in finishes] == [committed, refused, committed]
        error = finishes[1].error
        assert error is not None
        assert TRANSACTION_CLASSIFIER.classify(error).error_type == "OC000_TRANSACTION_CONFLICT"
        (finish,) = await engine.finisher.finish([units[1]])
        assert finish.outcome is committed
        assert (await stored(engine, "b"))["done"] is True

    async def test_leases_beside_a_locked_one_are_renewed(self, harness: EngineHarness) -> None:
        harness.needs(Capability.LOCKS)
        ids = [f"{number}" for number in range(9)]
        engine = await holding(harness, *({"_id": one} for one in ids))
        now = whole_second(harness)
        await begin(harness, engine, ids, "op", _LEASED, token="ours", now=now)
        later, tokens = now + timedelta(minutes=5), dict.fromkeys(ids, "ours")
        async with _locking(harness, "4"):
            assert await engine.documents.renew("docs", tokens, later) == len(ids) - 1
        ends = {one: moment((await stored(engine, one))[LEASE_UNTIL]) for one in ids}
        assert [one for one, until in ends.items() if until != later] == ["4"]
        assert await engine.documents.renew("docs", tokens, later) == len(ids)
