"""What every engine does once a gap was given up: late results, parked keys, and who looks."""

from dataclasses import replace

from headway.core.sequence_answers import Outcome
from headway.core.sequence_settings import OnGap, OnLate, SequenceSettings
from headway.core.sequence_state import Gap, Why
from headway.core.sequence_waiting import Mode, standing
from headway.testing.conformance.ordering import (
    KEY,
    SECOND,
    SequencesHarness,
    Worker,
    gap_of,
    positions,
    standing_before,
    worker,
)

USUAL = SequenceSettings()


class LateConformance:
    """Nothing that was given up is lost: it is taken back, parked, or said to be dropped."""

    async def test_a_late_result_takes_the_miss_back_once(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 5)
        ours.passes(180)
        await ours.drained((await ours.look()).work)
        late = await ours.offer(3)
        assert late.work is not None
        assert (late.outcome, late.work.late, late.work.gap) == (Outcome.PROCESS, True, None)
        twice = await ours.offer(3)
        assert (twice.outcome, twice.work) == (Outcome.HELD, None)
        assert positions(await ours.drained(late.work)) == [3]
        assert await ours.marker() == 5
        assert (await ours.offer(3)).outcome is Outcome.DUPLICATE
        assert [(await ours.offer(n)).outcome for n in (1, 5)] == [Outcome.DUPLICATE] * 2
        for position in (4, 2):
            answer = await ours.offer(position)
            assert [work.late for work in await ours.drained(answer.work)] == [True]

    async def test_a_late_result_waits_for_its_turn_too(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 3)
        ours.passes(180)
        await ours.drained((await ours.look()).work)
        four = await ours.offer(4)
        assert (await ours.offer(2)).outcome is Outcome.HELD
        done = await ours.drained(four.work)
        assert [(work.position, work.late) for work in done] == [(4, False), (2, True)]

    async def test_what_comes_while_it_is_being_given_up_is_late(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness, 3)
        ours.passes(180)
        given_up = (await ours.look()).work
        assert (await ours.offer(2)).outcome is Outcome.HELD
        done = await ours.drained(given_up)
        assert [(work.position, work.late) for work in done] == [(3, False), (2, True)]

    async def test_it_is_remembered_for_a_while(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 3, settings=replace(USUAL, remember=9 * SECOND))
        ours.passes(180)
        await ours.drained((await ours.look()).work)
        ours.passes(9)
        assert (await ours.offer(2)).outcome is Outcome.DUPLICATE

    async def test_late_results_can_be_dropped(self, harness: SequencesHarness) -> None:
        settings = replace(USUAL, on_gap=OnGap.SKIP, on_late=OnLate.DROP)
        ours = await standing_before(harness, 3, settings=settings)
        ours.passes(180)
        done = await ours.drained((await ours.look()).work)
        assert done[0].gap == Gap(2, 2, 1, Why.TIMEOUT, fill=False)
        assert (await ours.offer(2)).outcome is Outcome.DUPLICATE
        assert (await ours.engine.read(KEY)).state.missed == ()

    # Parking

    async def test_a_gap_can_be_parked_until_it_is_filled(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 3, settings=replace(USUAL, on_gap=OnGap.PARK))
        ours.passes(180)
        looked = await ours.look()
        assert (looked.work, looked.given_up, looked.look_in) == (None, Why.TIMEOUT, None)
        ours.passes(100_000)
        assert list(await ours.engine.due(5)) == []
        assert await ours.engine.waiting(5) == (1, [KEY])
        assert await mode(ours) is Mode.PARKED
        assert await ours.process(2) == [2, 3]
        assert await ours.engine.waiting(5) == (0, [])

    async def test_a_parked_key_holds_on_and_can_be_drained(
        self, harness: SequencesHarness
    ) -> None:
        settings = replace(USUAL, on_gap=OnGap.PARK)
        ours = await standing_before(harness, *range(3, 12), settings=settings)
        assert (await ours.offer(13)).given_up is Why.BREAKER
        assert (await ours.offer(14)).given_up is None
        assert await ours.engine.drain(KEY)
        assert list(await ours.engine.due(5)) == [KEY]
        done = await ours.drained((await ours.look()).work)
        assert positions(done) == [*range(3, 12), 13, 14]
        assert [gap_of(work) for work in done if work.gap] == [[2], [12]]
        assert not await ours.engine.drain(KEY)

    # Who looks

    async def test_a_key_whose_drainer_died_is_found_by_anyone(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness, 3)
        theirs = await worker(harness, "b")
        assert list(await theirs.engine.due(5)) == []
        ours.passes(10)
        assert list(await ours.engine.due(5)) == [KEY]  # who dies here
        assert list(await theirs.engine.due(5)) == []
        ours.passes(30)
        assert list(await theirs.engine.due(5)) == [KEY]
        await theirs.look()
        assert list(await theirs.engine.due(5)) == []
        ours.passes(150)
        assert list(await theirs.engine.due(5)) == [KEY]
        assert (await theirs.look()).given_up is Why.TIMEOUT

    async def test_who_looked_at_a_key_looks_again_by_the_schedule(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness, 3)
        passed = 0
        for age in (10, 30, 60, 120, 180):
            ours.passes(age - 1 - passed)
            assert list(await ours.engine.due(5)) == []
            ours.passes(1)
            passed = age
            assert list(await ours.engine.due(5)) == [KEY]
            looked = await ours.look()
        assert looked.given_up is Why.TIMEOUT

    async def test_the_longest_due_comes_first(self, harness: SequencesHarness) -> None:
        ours = await worker(harness)
        for key in ("c", "a", "b"):
            await ours.process(1, key=key)
            await ours.offer(3, key=key)
            ours.passes(1)
        assert await ours.engine.waiting(2) == (3, ["c", "a"])
        ours.passes(10)
        assert list(await ours.engine.due(2)) == ["c", "a"]
        assert list(await ours.engine.due(2)) == ["b"]

    async def test_a_key_can_be_forgotten(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 3, 4)
        assert await ours.engine.forget(KEY) == 2
        assert await ours.engine.waiting(5) == (0, [])
        assert list(await ours.engine.held(KEY, 5)) == []
        looked = await ours.look()
        assert (looked.work, looked.held, looked.look_in) == (None, 0, None)
        assert await ours.engine.forget(KEY) == 0


async def mode(ours: Worker) -> Mode:
    reading = await ours.engine.read(KEY)
    return standing(reading.state, ours.engine.settings, reading.now).mode
