"""What every engine does with results that are missing: it waits, and gives up."""

from dataclasses import replace
from datetime import timedelta

from headway.core.sequence_answers import Outcome
from headway.core.sequence_settings import SequenceSettings
from headway.core.sequence_state import Gap, Why
from headway.testing.conformance.ordering import (
    KEY,
    SECOND,
    SequencesHarness,
    gap_of,
    positions,
    standing_before,
    worker,
)

USUAL = SequenceSettings()


class GapsConformance:
    """Timers and the breaker act on a true gap only, and each end has its reason."""

    async def test_a_gap_is_looked_at_by_the_schedule(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 3)
        for attempt, wait in enumerate((20, 30, 60, 60), start=1):
            ours.passes((10, 20, 30, 60)[attempt - 1])
            looked = await ours.look()
            assert (looked.work, looked.given_up) == (None, None)
            assert (looked.attempt, looked.look_in) == (attempt, wait * SECOND)
        ours.passes(60)
        looked = await ours.look()
        assert looked.work is not None
        assert (looked.given_up, looked.attempt) == (Why.TIMEOUT, 5)
        assert looked.work.gap == Gap(2, 2, 1, Why.TIMEOUT)
        assert positions(await ours.drained(looked.work)) == [3]

    async def test_each_gap_has_its_own_time(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 3, 5)
        ours.passes(170)
        assert await ours.process(2) == [2, 3]
        ours.passes(170)
        looked = await ours.look()
        assert (looked.work, looked.given_up, looked.attempt) == (None, None, 4)
        ours.passes(10)
        assert gap_of((await ours.look()).work) == [4]

    async def test_a_timeout_gives_up_the_first_gap_only(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 4, 6)
        ours.passes(180)
        done = await ours.drained((await ours.look()).work)
        assert (positions(done), gap_of(done[0])) == ([4], [2, 3])
        assert (await ours.look()).work is None
        assert await ours.process(5) == [5, 6]

    async def test_results_that_only_fill_it_partly_do_not_prolong_the_wait(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness, 5)
        ours.passes(100)
        await ours.offer(3)
        ours.passes(80)
        done = await ours.drained((await ours.look()).work)
        assert (positions(done), gap_of(done[0])) == ([3], [2])

    # The breaker

    async def test_ten_results_behind_a_gap_end_the_wait(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, *range(3, 12))
        answer = await ours.offer(14)
        assert (answer.outcome, answer.given_up, answer.held) == (Outcome.HELD, Why.BREAKER, 10)
        done = await ours.drained(answer.work)
        assert positions(done) == [*range(3, 12), 14]
        assert [gap_of(work) for work in done if work.gap] == [[2], [12, 13]]
        assert {work.gap.why for work in done if work.gap} == {Why.BREAKER}
        assert await ours.process(15) == [15]

    async def test_results_behind_a_slow_one_trip_nothing(self, harness: SequencesHarness) -> None:
        ours = await worker(harness)
        slow = await ours.offer(1)
        for position in range(2, 32):
            answer = await ours.offer(position)
            assert (answer.outcome, answer.work, answer.given_up) == (Outcome.HELD, None, None)
        assert (await ours.look()).given_up is None
        done = await ours.drained(slow.work)
        assert positions(done) == [*range(1, 32)]
        assert not any(work.gap for work in done)

    async def test_what_a_dead_worker_had_is_no_gap_for_the_breaker(
        self, harness: SequencesHarness
    ) -> None:
        ours = await worker(harness)
        await ours.offer(1)
        for position in range(2, 14):
            await ours.offer(position)
        ours.passes(30)
        looked = await ours.look()
        assert (looked.work, looked.given_up, looked.look_in) == (None, None, 10 * SECOND)
        assert (await ours.offer(14)).given_up is None
        assert await ours.process(1) == [*range(1, 15)]

    async def test_a_started_result_whose_worker_died_outlasts_the_schedule(
        self, harness: SequencesHarness
    ) -> None:
        """It arrived, so it is no gap: the source delivers it again, however late."""
        ours = await worker(harness)
        await ours.offer(1)
        await ours.offer(2)
        ours.passes(USUAL.lease.total_seconds())
        for _ in range(10):
            ours.passes(170)
            looked = await ours.look()
            assert (looked.work, looked.given_up) == (None, None)
            assert looked.look_in is not None
        assert await ours.process(1) == [1, 2]

    async def test_a_started_result_that_never_returns_is_given_up_in_the_end(
        self, harness: SequencesHarness
    ) -> None:
        ours = await worker(harness)
        mine = (await ours.offer(1)).work
        await ours.offer(2)
        most = (USUAL.lease + USUAL.gap_at_most).total_seconds()
        ours.passes(most - 1)
        assert (await ours.look()).given_up is None
        ours.passes(1)
        looked = await ours.look()
        assert (looked.given_up, gap_of(looked.work)) == (Why.TIMEOUT, [1])
        assert not (await ours.complete(mine)).accepted

    async def test_a_gap_behind_a_late_result_whose_worker_died_keeps_its_own_time(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness, 3)
        ours.passes(180)
        assert gap_of((await ours.drained((await ours.look()).work))[0]) == [2]
        await ours.offer(2)  # late: its worker dies
        await ours.offer(5)
        ours.passes(USUAL.lease.total_seconds())
        assert (await ours.look()).given_up is None
        ours.passes(180)
        assert gap_of((await ours.look()).work) == [4]

    async def test_nothing_is_given_up_while_somebody_is_at_the_key(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness, 4)
        mine = (await ours.offer(2)).work
        assert mine is not None
        for _ in range(100):
            ours.passes(25)
            assert await ours.engine.renew(mine)
            looked = await ours.look()
            assert (looked.work, looked.given_up) == (None, None)
        assert positions(await ours.drained(mine)) == [2]
        assert (await ours.look()).given_up is None

    # The source

    async def test_a_source_that_is_always_a_little_ahead_delays_the_end_a_little(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness, 3)
        began, ends = harness.clock.now(), []
        for _ in range(6):
            reached = harness.clock.now() - 2 * SECOND
            looked = await ours.look(caught_up=reached)
            ends.append(looked.given_up)
            if looked.work is not None:
                break
            assert looked.look_in is not None
            ours.passes(looked.look_in.total_seconds())
            assert list(await ours.engine.due(5)) == [KEY]
        reached = harness.clock.now() - 2 * SECOND
        assert (await ours.look(caught_up=reached)).given_up is Why.TIMEOUT
        assert ends == [None] * 6
        assert harness.clock.now() - began == 182.5 * SECOND

    async def test_what_the_source_still_has_is_no_gap(self, harness: SequencesHarness) -> None:
        behind = harness.clock.now() - SECOND
        ours = await standing_before(harness, 3)
        for position in range(4, 16):
            assert (await ours.offer(position, caught_up=behind)).given_up is None
        ours.passes(600)
        looked = await ours.look(caught_up=behind)
        assert (looked.given_up, looked.attempt) == (None, 5)
        assert looked.look_in == 17.5 * SECOND  # 180 and 77.5, and then each minute
        assert await ours.process(2) == [*range(2, 16)]

    async def test_the_breaker_leaves_a_gap_that_the_source_may_still_fill(
        self, harness: SequencesHarness
    ) -> None:
        passed = harness.clock.now() + SECOND
        ours = await standing_before(harness, *range(3, 11))
        ours.passes(60)
        assert (await ours.offer(12, caught_up=passed)).given_up is None
        answer = await ours.offer(13, caught_up=passed)
        assert answer.given_up is Why.BREAKER
        done = await ours.drained(answer.work)
        assert (positions(done), gap_of(done[0])) == ([*range(3, 11)], [2])
        assert await ours.process(11) == [11, 12, 13]

    async def test_a_gap_is_given_up_when_the_source_has_passed_it(
        self, harness: SequencesHarness
    ) -> None:
        since = harness.clock.now()
        ours = await standing_before(harness, 3)
        ours.passes(600)
        assert (await ours.look(caught_up=since + 179 * SECOND)).given_up is None
        looked = await ours.look(caught_up=since + 180 * SECOND)
        assert looked.given_up is Why.TIMEOUT

    async def test_waiting_for_the_source_has_an_end(self, harness: SequencesHarness) -> None:
        since = harness.clock.now()
        few = replace(USUAL, breaker_at_most=20)
        ours = await standing_before(harness, 3, settings=few)
        ours.passes(1800)
        assert (await ours.look(caught_up=since)).given_up is Why.TIMEOUT
        await ours.process(1, key="other")
        answers = [await ours.offer(n, key="other", caught_up=since) for n in range(3, 23)]
        assert [answer.given_up for answer in answers] == [None] * 19 + [Why.BREAKER]

    # Too old

    async def test_what_is_held_too_long_is_released(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 30)
        for position in range(2, 23):  # always in time for the present gap
            ours.passes(170)
            assert await ours.process(position) == [position]
        ours.passes(29)
        assert (await ours.look()).given_up is None
        ours.passes(1)
        looked = await ours.look()
        assert looked.given_up is Why.TOO_OLD
        assert gap_of(looked.work) == [*range(23, 30)]
        assert positions(await ours.drained(looked.work)) == [30]

    async def test_all_times_can_be_scaled(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 3, settings=USUAL.scaled(0.001))
        harness.clock.advance(timedelta(milliseconds=179))
        assert (await ours.look()).look_in == timedelta(milliseconds=1)
        harness.clock.advance(timedelta(milliseconds=1))
        assert (await ours.look()).given_up is Why.TIMEOUT
