"""What every engine does with work that somebody is at: leases, takeovers, and repeated calls."""

from datetime import timedelta

from headway.core.sequence_answers import Look, Offer, Outcome
from headway.testing.conformance.ordering import (
    KEY,
    SECOND,
    SequencesHarness,
    payload,
    positions,
    standing_before,
    worker,
)


class FlightsConformance:
    """One position of a key is in flight, and belongs to who has its token."""

    async def test_a_lease_that_ended_is_taken_over(self, harness: SequencesHarness) -> None:
        ours, theirs = await worker(harness, "a"), await worker(harness, "b")
        mine = (await ours.offer(1)).work
        assert (await theirs.offer(1)).outcome is Outcome.HELD
        assert (await theirs.look()).work is None
        ours.passes(30)
        looked = await theirs.look()
        assert looked.work is not None
        assert (looked.work.position, looked.work.payload) == (1, payload(1))
        assert not (await ours.complete(mine)).accepted
        assert (await theirs.complete(looked.work)).accepted

    async def test_the_next_offer_takes_over_too(self, harness: SequencesHarness) -> None:
        ours, theirs = await worker(harness, "a"), await worker(harness, "b")
        await ours.offer(1)
        await theirs.offer(1)
        ours.passes(30)
        answer = await theirs.offer(2)
        assert (answer.outcome, answer.held) == (Outcome.HELD, 2)
        assert positions(await theirs.drained(answer.work)) == [1, 2]

    async def test_who_is_late_and_not_replaced_may_complete(
        self, harness: SequencesHarness
    ) -> None:
        ours = await worker(harness)
        work = (await ours.offer(1)).work
        ours.passes(100)
        assert (await ours.complete(work)).accepted
        assert not (await ours.complete(work)).accepted

    async def test_held_work_comes_back_with_its_attempts(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 3)
        work = (await ours.complete((await ours.offer(2)).work)).work
        for attempt in (1, 2, 3):
            assert work is not None
            assert (work.position, work.attempt) == (3, attempt)
            ours.passes(30)
            work = (await ours.look()).work

    async def test_a_lease_can_be_renewed(self, harness: SequencesHarness) -> None:
        ours, theirs = await worker(harness, "a"), await worker(harness, "b")
        work = (await ours.offer(1)).work
        assert work is not None
        await theirs.offer(1)
        ours.passes(20)
        assert await ours.engine.renew(work)
        ours.passes(20)
        assert (await theirs.look()).work is None
        ours.passes(20)
        assert (await theirs.look()).work is not None
        assert not await ours.engine.renew(work)

    async def test_an_offer_that_is_repeated_is_answered_as_before(
        self, harness: SequencesHarness
    ) -> None:
        ours = await worker(harness)
        offer = ours.made(1)
        first, again = (await ours.engine.offer([offer]))[0], (await ours.engine.offer([offer]))[0]
        assert first == again
        held = ours.made(2)
        assert [(await ours.engine.offer([held]))[0].again for _ in range(2)] == [False, True]
        assert positions(await ours.drained(first.work)) == [1, 2]

    async def test_a_completion_that_is_repeated_is_answered_as_before(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness, 3, 4)
        work = (await ours.offer(2)).work
        first, again = await ours.complete(work), await ours.complete(work)
        assert first.accepted
        assert again.accepted
        assert first.work == again.work
        assert positions(await ours.drained(again.work)) == [3, 4]

    async def test_a_look_that_is_repeated_is_answered_as_before(
        self, harness: SequencesHarness
    ) -> None:
        ours = await worker(harness)
        await ours.offer(1)
        await ours.offer(1)
        ours.passes(30)
        look = Look(KEY, ours.token())
        first, again = (await ours.engine.look([look]))[0], (await ours.engine.look([look]))[0]
        assert first.work == again.work
        assert positions(await ours.drained(again.work)) == [1]

    # What could not be applied

    async def test_what_is_given_back_is_held_for_a_while(self, harness: SequencesHarness) -> None:
        ours, theirs = await worker(harness, "a"), await worker(harness, "b")
        offer = ours.made(1)
        await ours.engine.offer([offer])
        assert await ours.engine.give_back(offer) == 10 * SECOND
        assert (await theirs.offer(2)).work is None
        assert (await theirs.look()).work is None
        ours.passes(10)
        looked = await theirs.look()
        assert looked.work is not None
        assert (looked.work.position, looked.work.attempt) == (1, 2)
        again = Offer(KEY, 1, looked.work.payload, looked.work.token)
        assert await theirs.engine.give_back(again) == 20 * SECOND
        assert await ours.engine.give_back(offer) is None
        theirs.passes(20)
        assert positions(await ours.drained((await ours.look()).work)) == [1, 2]

    async def test_it_can_be_given_back_for_at_once(self, harness: SequencesHarness) -> None:
        ours = await worker(harness)
        offer = ours.made(1)
        await ours.engine.offer([offer])
        assert await ours.engine.give_back(offer, timedelta()) == timedelta()
        assert list(await ours.engine.due(5)) == [KEY]
        assert positions(await ours.drained((await ours.look()).work)) == [1]
