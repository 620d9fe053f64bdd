"""What every engine does with results that come in any order."""

import asyncio
from collections.abc import Iterable

from headway.core.sequence_answers import Completion, Offer, Outcome
from headway.core.sequence_state import HIGHEST, in_epoch
from headway.core.sequence_waiting import Mode, standing
from headway.core.travel import instant
from headway.ports.sequences import HeldResult
from headway.testing.conformance.ordering import (
    KEY,
    SECOND,
    SequencesHarness,
    payload,
    positions,
    standing_before,
    worker,
)

MINUTE = 60_000
FOUR = 1_700_000_040_000
"""Four o'clock, as a position."""


class OrderConformance:
    """Order, duplicates, numberings and batches."""

    async def test_results_in_order_are_processed_at_once(self, harness: SequencesHarness) -> None:
        ours = await worker(harness)
        for n in range(5):
            answer = await ours.offer(FOUR + n * MINUTE, step=MINUTE)
            assert (answer.outcome, answer.held, answer.look_in) == (Outcome.PROCESS, 0, None)
            done = await ours.complete(answer.work)
            assert (done.accepted, done.work, done.cleared, done.look_in) == (
                True,
                None,
                False,
                None,
            )
        assert await ours.marker() == FOUR + 4 * MINUTE
        assert await ours.engine.waiting(10) == (0, [])

    async def test_the_missing_result_releases_what_waits_for_it(
        self, harness: SequencesHarness
    ) -> None:
        ours, theirs = await worker(harness, "a"), await worker(harness, "b")
        await ours.process(FOUR - MINUTE, step=MINUTE)
        early = await ours.offer(FOUR + MINUTE, step=MINUTE)
        assert (early.outcome, early.work, early.held) == (Outcome.HELD, None, 1)
        assert early.look_in == 10 * SECOND
        await ours.offer(FOUR + 2 * MINUTE, step=MINUTE)
        missing = await theirs.offer(FOUR, step=MINUTE)
        assert missing.outcome is Outcome.PROCESS
        done = await theirs.drained(missing.work)
        assert positions(done) == [FOUR, FOUR + MINUTE, FOUR + 2 * MINUTE]
        assert [work.payload for work in done] == [payload(p) for p in positions(done)]
        assert [work.held for work in done] == [False, True, True]
        assert all(work.gap is None and not work.late and work.attempt == 1 for work in done)
        assert await theirs.engine.waiting(10) == (0, [])

    async def test_the_last_of_the_held_clears_the_key(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 3)
        first = await ours.complete((await ours.offer(2)).work)
        assert (first.cleared, first.held) == (False, 1)
        last = await ours.complete(first.work)
        assert (last.cleared, last.held, last.work) == (True, 0, None)

    async def test_while_one_is_in_flight_all_else_is_held(self, harness: SequencesHarness) -> None:
        ours, theirs = await worker(harness, "a"), await worker(harness, "b")
        first = await ours.offer(1)
        for position in (2, 3, 4):
            answer = await theirs.offer(position)
            assert (answer.outcome, answer.work) == (Outcome.HELD, None)
            assert answer.look_in == ours.engine.settings.lease
        assert positions(await ours.drained(first.work)) == [1, 2, 3, 4]

    async def test_what_was_applied_is_a_duplicate_at_once(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 4)
        for position in (1, 0):
            answer = await ours.offer(position)
            assert (answer.outcome, answer.work, answer.held) == (Outcome.DUPLICATE, None, 1)
        assert (await ours.engine.read(KEY)).state.marker == 1

    async def test_the_last_result_of_an_idle_key_is_a_duplicate_when_it_comes_again(
        self, harness: SequencesHarness
    ) -> None:
        ours = await worker(harness)
        assert positions(await ours.drained((await ours.offer(1)).work)) == [1]
        answer = await ours.offer(1)
        assert (answer.outcome, answer.work) == (Outcome.DUPLICATE, None)

    async def test_what_is_held_already_is_held_once(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 3)
        answer = await ours.offer(3, payload=b"again")
        assert (answer.outcome, answer.again, answer.held) == (Outcome.HELD, True, 1)
        assert [each.payload for each in await ours.engine.held(KEY, 9)] == [payload(3)]

    async def test_the_first_result_of_a_key_is_the_first(self, harness: SequencesHarness) -> None:
        ours = await worker(harness)
        first = await ours.offer(FOUR, step=MINUTE)
        assert first.outcome is Outcome.PROCESS
        before = await ours.offer(FOUR - MINUTE, step=MINUTE)
        assert (before.outcome, before.work) == (Outcome.DUPLICATE, None)
        assert positions(await ours.drained(first.work)) == [FOUR]

    async def test_a_known_beginning_is_waited_for(self, harness: SequencesHarness) -> None:
        ours = await worker(harness)
        assert (await ours.offer(2, applied=0)).outcome is Outcome.HELD
        assert await ours.process(1) == [1, 2]

    async def test_the_marker_is_never_behind_the_callers_own_store(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness, 3, 9)
        answer = await ours.offer(6, applied=5)
        assert answer.outcome is Outcome.PROCESS
        await ours.drained(answer.work)
        assert await ours.marker() == 6
        assert positions_held(await ours.engine.held(KEY, 9)) == [9]
        await ours.offer(8, applied=2)  # and it never moves back
        assert await ours.marker() == 6

    async def test_without_a_marker_nothing_is_missing(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness)
        await ours.engine.forget(KEY)
        answer = await ours.offer(FOUR, step=MINUTE)
        assert answer.work is not None
        assert (answer.outcome, answer.work.gap) == (Outcome.PROCESS, None)

    async def test_another_interval_makes_no_gap(self, harness: SequencesHarness) -> None:
        ours = await worker(harness)
        assert await ours.process(FOUR, step=MINUTE) == [FOUR]
        assert await ours.process(FOUR + 5 * MINUTE, step=5 * MINUTE) == [FOUR + 5 * MINUTE]
        # From five minutes to one, and the first check after the change comes two minutes later.
        begins = FOUR + 7 * MINUTE
        assert await ours.process(begins, step=MINUTE, begins=begins) == [begins]
        assert (await ours.offer(begins + 2 * MINUTE, step=MINUTE, begins=begins)).held == 1

    async def test_a_new_numbering_follows_the_old_one(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness)
        begins = in_epoch(1, 1)
        assert await ours.process(begins, begins=begins) == [begins]
        assert (await ours.offer(2)).outcome is Outcome.DUPLICATE
        assert (await ours.offer(in_epoch(1, 3), begins=begins)).outcome is Outcome.HELD
        assert await ours.process(in_epoch(1, 2)) == [in_epoch(1, 2), in_epoch(1, 3)]

    async def test_positions_reach_as_far_as_promised(self, harness: SequencesHarness) -> None:
        ours = await worker(harness)
        assert await ours.process(HIGHEST - 2) == [HIGHEST - 2]
        assert await ours.process(HIGHEST, HIGHEST - 1) == [HIGHEST - 1, HIGHEST]

    async def test_a_numbering_may_begin_below_zero(self, harness: SequencesHarness) -> None:
        ours = await worker(harness)
        assert (await ours.offer(1, begins=-5, applied=-1)).outcome is Outcome.HELD
        assert (await ours.engine.read(KEY)).state.held[0].begins == -5
        assert await ours.process(0, begins=-5) == [0, 1]

    # Batches

    async def test_a_batch_is_answered_in_its_order(self, harness: SequencesHarness) -> None:
        ours = await worker(harness)
        keys = [f"k{n % 150}" for n in range(450)]
        offers = [
            Offer(key, 1 + n // 150, payload(n), f"t{n}", applied=0) for n, key in enumerate(keys)
        ]
        answers = await ours.engine.offer(offers)
        assert [answer.outcome for answer in answers[:150]] == [Outcome.PROCESS] * 150
        assert [answer.outcome for answer in answers[150:]] == [Outcome.HELD] * 300
        works = [answer.work for answer in answers if answer.work]
        for turn in (2, 3, None):
            done = await ours.engine.complete(
                [Completion(work.key, work.position, work.token) for work in works]
            )
            works = [each.work for each in done if each.work]
            expected = [] if turn is None else [turn] * 150
            assert [work.position for work in works] == expected
        assert await ours.engine.waiting(5) == (0, [])
        assert list(await ours.engine.offer([])) == []
        assert list(await ours.engine.complete([])) == []

    async def test_of_many_who_offer_the_same_at_once_one_gets_it(
        self, harness: SequencesHarness
    ) -> None:
        workers = [await worker(harness, f"w{n}") for n in range(4)]
        answers = await asyncio.gather(*(each.offer(1) for each in workers * 5))
        assert sorted(answer.outcome for answer in answers).count(Outcome.PROCESS) == 1
        assert [answer.again for answer in answers].count(False) == 2

    async def test_any_bytes_are_given_back_as_they_are(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness)
        raw = (bytes(range(256)), b"", b" 1 2 | x", "käse ✓".encode(), b"x" * 100_000)
        for n, each in enumerate(raw):
            await ours.offer(3 + n, payload=each)
        done = await ours.drained((await ours.offer(2)).work)
        assert tuple(work.payload for work in done[1:]) == raw

    async def test_results_with_the_same_in_them_are_held_each(
        self, harness: SequencesHarness
    ) -> None:
        ours = await standing_before(harness)
        beats = (b"beat", b"beat", b"", b"", b"beat")
        offers = [ours.made(3 + n, payload=each) for n, each in enumerate(beats)]
        answers = await ours.engine.offer(offers)
        assert [answer.held for answer in answers] == [1, 2, 3, 4, 5]
        held = [HeldResult(3 + n, each) for n, each in enumerate(beats)]
        assert list(await ours.engine.held(KEY, 9)) == held
        done = await ours.drained((await ours.offer(2)).work)
        assert [(work.position, work.payload) for work in done[1:]] == [
            (each.position, each.payload) for each in held
        ]

    async def test_keys_may_be_any_text(self, harness: SequencesHarness) -> None:
        ours = await worker(harness)
        keys = ("a b", "käse", "a:b", "x{y", "x}y", "it's", "5", "%s", "a|b", "", "}x", "{", "=}x")
        for key in keys:
            assert await ours.process(1, key=key) == [1]
            await ours.offer(3, key=key)
        assert sorted((await ours.engine.waiting(50))[1]) == sorted(keys)
        ours.passes(10)
        assert sorted(await ours.engine.due(50)) == sorted(keys)
        for key in keys:
            assert await ours.marker(key) == 1
            assert await ours.engine.forget(key) == 1
        assert await ours.engine.waiting(50) == (0, [])

    async def test_how_a_key_stands_can_be_said(self, harness: SequencesHarness) -> None:
        ours = await standing_before(harness, 4, 5)
        reading = await ours.engine.read(KEY)
        seen = standing(reading.state, ours.engine.settings, reading.now)
        assert (seen.mode, seen.marker, seen.held) == (Mode.WAITING, 1, (4, 5))
        assert seen.missing is not None
        assert list(seen.missing.positions()) == [2, 3]
        assert seen.gives_up == reading.now + 180 * SECOND
        assert seen.next_look == reading.now + 10 * SECOND
        unknown = await ours.engine.read("unknown")
        assert standing(unknown.state, ours.engine.settings, unknown.now).mode is Mode.IDLE

    # History

    async def test_the_history_of_changes_is_kept_beside_the_sequences(
        self, harness: SequencesHarness
    ) -> None:
        ours, theirs = await worker(harness), await worker(harness, "other")
        assert list(await ours.engine.history.latest(10)) == []
        for n in range(3):
            at = instant(harness.clock.now())
            await (ours if n % 2 else theirs).engine.history.append({"at": at, "n": n})
        await ours.engine.history.append({"at": instant(harness.clock.now()), "n": "ü ✓"})
        for _ in range(2):
            found = [each["n"] for each in await theirs.engine.history.latest(10)]
            assert found == ["ü ✓", 2, 1, 0]
        assert [each["n"] for each in await ours.engine.history.latest(2)] == ["ü ✓", 2]


def positions_held(results: Iterable[HeldResult]) -> list[int]:
    return [each.position for each in results]
