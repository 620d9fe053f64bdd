"""What every engine does once a gap was handed out as given up, and whoever got it is gone.

Nobody knows how much of it was done: misses may stand, and the result behind them may be applied.
"""

from dataclasses import replace
from datetime import timedelta

from headway.core.sequence_answers import Offer, Outcome, Turn
from headway.core.sequence_settings import OnGap, OnLate, SequenceSettings
from headway.core.sequence_state import Why
from headway.testing.conformance.ordering import (
    KEY,
    SequencesHarness,
    Worker,
    gap_of,
    positions,
    standing_before,
    worker,
)

USUAL = SequenceSettings()


class HandedConformance:
    """What was handed out as given up is handed out again, and stays given up."""

    async def test_a_gap_whose_worker_died_is_handed_out_again_though_its_result_came(
        self, harness: SequencesHarness
    ) -> None:
        ours, gone = await given_up(harness, 4)
        ours.passes(30)
        answer = await ours.offer(2)
        assert (answer.outcome, answer.given_up) == (Outcome.HELD, None)
        assert answer.work is not None
        assert (answer.work.position, answer.work.attempt, answer.work.late) == (4, 2, False)
        assert answer.work.gap == gone.gap
        assert not (await ours.complete(gone)).accepted
        done = await ours.drained(answer.work)
        assert [(work.position, work.late) for work in done] == [(4, False), (2, True)]
        late = await ours.offer(3)
        assert [work.late for work in await ours.drained(late.work)] == [True]
        assert await ours.process(5) == [5]

    async def test_what_came_before_it_died_is_late_too(self, harness: SequencesHarness) -> None:
        ours, _gone = await given_up(harness, 3)
        assert (await ours.offer(2)).work is None
        ours.passes(30)
        assert list(await ours.engine.due(5)) == [KEY]
        looked = await ours.look()
        assert (looked.given_up, gap_of(looked.work)) == (None, [2])
        done = await ours.drained(looked.work)
        assert [(work.position, work.late) for work in done] == [(3, False), (2, True)]

    async def test_what_was_given_back_with_its_gap_keeps_it(
        self, harness: SequencesHarness
    ) -> None:
        ours, gone = await given_up(harness, 3)
        back = Offer(KEY, gone.position, gone.payload, gone.token)
        assert await ours.engine.give_back(back, timedelta()) == timedelta()
        answer = await ours.offer(2)
        assert (answer.outcome, gap_of(answer.work)) == (Outcome.HELD, [2])
        done = await ours.drained(answer.work)
        assert [(work.position, work.late) for work in done] == [(3, False), (2, True)]

    async def test_a_store_that_has_it_applied_does_not_make_it_forget_the_misses(
        self, harness: SequencesHarness
    ) -> None:
        ours, _gone = await given_up(harness, 3)
        ours.passes(30)
        assert await ours.process(4, applied=3) == [4]
        late = await ours.offer(2, applied=4)
        assert late.work is not None
        assert (late.outcome, late.work.late) == (Outcome.PROCESS, True)

    async def test_a_store_that_has_a_part_of_it_does_not_either(
        self, harness: SequencesHarness
    ) -> None:
        ours, _gone = await given_up(harness, 5)
        ours.passes(30)
        answer = await ours.offer(6, applied=3)
        assert (answer.outcome, gap_of(answer.work)) == (Outcome.HELD, [4])
        assert positions(await ours.drained(answer.work)) == [5, 6]
        for position in (2, 3, 4):
            late = await ours.offer(position)
            assert [work.late for work in await ours.drained(late.work)] == [True]

    async def test_the_misses_are_remembered_from_when_it_was_completed(
        self, harness: SequencesHarness
    ) -> None:
        short = replace(USUAL, remember=timedelta(seconds=9))
        ours, _gone = await given_up(harness, 3, settings=short)
        ours.passes(30)
        await ours.drained((await ours.look()).work)
        ours.passes(8)
        late = await ours.offer(2)
        assert [work.late for work in await ours.drained(late.work)] == [True]

    async def test_each_gap_of_a_breaker_is_handed_out_again(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness, *range(3, 11), 12)
        tripped = await ours.offer(14)
        assert tripped.given_up is Why.BREAKER
        work = tripped.work
        while work is not None and work.position < 12:
            work = (await ours.complete(work)).work
        assert gap_of(work) == [11]
        ours.passes(30)
        again = await ours.offer(11)
        assert (again.outcome, gap_of(again.work)) == (Outcome.HELD, [11])
        assert again.work is not None
        done = await ours.drained(again.work)
        seen = [(work.position, gap_of(work), work.late) for work in done]
        # What is late goes before what has not been handed out.
        assert seen == [(12, [11], False), (11, [], True), (14, [13], False)]

    async def test_where_late_results_are_dropped_nothing_goes_before_it_either(
        self, harness: SequencesHarness
    ) -> None:
        for on_gap in (OnGap.BACKFILL, OnGap.SKIP):
            settings = replace(USUAL, on_gap=on_gap, on_late=OnLate.DROP)
            ours, gone = await given_up(harness, 3, settings=settings)
            ours.passes(30)
            answer = await ours.offer(2)
            assert answer.work is not None
            assert (answer.outcome, answer.work.gap) == (Outcome.HELD, gone.gap)
            completed = await ours.complete(answer.work)
            assert (completed.work, completed.stale, completed.cleared) == (None, 1, True)
            assert (await ours.offer(2)).outcome is Outcome.DUPLICATE
            assert (await ours.engine.read(KEY)).state.missed == ()
            await ours.engine.forget(KEY)

    # What is dropped

    async def test_what_an_offer_drops_is_counted(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 3, 4, 7)
        answer = await ours.offer(8, applied=5)
        assert (answer.outcome, answer.held, answer.stale) == (Outcome.HELD, 2, 2)
        done = await ours.offer(6, applied=9)
        assert (done.outcome, done.held, done.stale) == (Outcome.DUPLICATE, 0, 2)
        assert (await ours.offer(10)).stale == 0

    async def test_what_is_dropped_before_a_turn_is_counted(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness, 3)
        answer = await ours.offer(6, applied=5)
        assert (answer.outcome, answer.held, answer.stale) == (Outcome.PROCESS, 0, 1)

    async def test_what_an_offer_dropped_is_not_released_by_who_has_it(
        self, harness: SequencesHarness
    ) -> None:
        ours, theirs = await standing_before(harness, 3, 4), await worker(harness, "b")
        three = (await ours.complete((await ours.offer(2)).work)).work
        assert (await theirs.offer(5, applied=3)).stale == 1
        first = await ours.complete(three)
        assert (first.accepted, first.released, first.stale) == (True, False, 0)
        assert first.work is not None
        assert (await ours.complete(first.work)).released


async def given_up(
    harness: SequencesHarness, behind: int, settings: SequenceSettings | None = None
) -> tuple[Worker, Turn]:
    """Give a worker, and what another one got with the gap before it when time was up."""
    ours = await standing_before(harness, behind, settings=settings)
    theirs = await worker(harness, "gone", settings)
    ours.passes(180)
    looked = await theirs.look()
    assert looked.given_up is Why.TIMEOUT
    assert looked.work is not None
    assert looked.work.gap is not None
    return ours, looked.work
