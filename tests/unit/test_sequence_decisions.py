"""What decides about a key, where its borders are: each of these was once changed unseen."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace as changed

from headway import ConfigurationError
from headway.operations import ResultOrder
from headway.order import Gap, OnGap, OnLate, Result, SequenceSettings, Why
from headway.testing.chance import Seeded
from headway.testing.clock import VirtualClock
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
from headway.testing.engines import MemorySequences, MemoryShelf
from headway.testing.ports import KeyState, Look, Missed, SequenceEngine, in_epoch

USUAL = SequenceSettings()
PARKING = replace(USUAL, on_gap=OnGap.PARK)


class Memory(SequencesHarness):
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self._shelf = MemoryShelf()

    async def open_sequences(self, settings: SequenceSettings) -> SequenceEngine:
        return MemorySequences(self.clock, settings, self._shelf)

    async def close(self) -> None: ...


@pytest.fixture
def memory() -> Memory:
    return Memory()


async def state_of(ours: Worker) -> KeyState:
    return (await ours.engine.read(KEY)).state


# Looks


async def test_a_look_leaves_alone_who_is_at_a_key_that_holds_nothing(memory: Memory) -> None:
    ours = await worker(memory)
    work = (await ours.offer(1)).work
    await ours.look()
    assert (await ours.complete(work)).accepted


async def test_a_look_whose_answer_was_lost_is_answered_with_all_of_it(memory: Memory) -> None:
    ours = await worker(memory)
    await ours.offer(1)
    await ours.offer(1)
    ours.passes(30)
    look = Look(KEY, ours.token())
    first, again = [(await ours.engine.look([look]))[0] for _ in range(2)]
    assert (first.held, first.attempt, first.look_in) == (1, 0, USUAL.lease)
    assert (again.work, again.held, again.look_in) == (first.work, 1, USUAL.lease)


async def test_a_parked_key_is_not_given_up_twice(memory: Memory) -> None:
    ours = await standing_before(memory, 3, settings=PARKING)
    ours.passes(180)
    looks = [await ours.look(), await ours.look()]
    assert [looked.given_up for looked in looks] == [Why.TIMEOUT, None]
    assert [looked.held for looked in looks] == [1, 1]


# What was given back


async def test_a_late_result_that_was_given_back_is_held_and_is_late_still(memory: Memory) -> None:
    ours = await standing_before(memory, 3)
    ours.passes(180)
    await ours.drained((await ours.look()).work)
    late = ours.made(2)
    await ours.engine.offer([late])
    assert await ours.engine.give_back(late) == 10 * SECOND
    (held,) = (await state_of(ours)).held
    assert (held.position, held.since) == (2, memory.clock.now())
    ours.passes(10)
    work = (await ours.look()).work
    assert work is not None
    assert (work.position, work.late) == (2, True)
    assert (await state_of(ours)).paused_until is None


async def test_what_was_applied_meanwhile_is_not_held_when_it_is_given_back(memory: Memory) -> None:
    ours = await worker(memory)
    first = ours.made(1)
    await ours.engine.offer([first])
    await ours.offer(5, applied=2)
    assert await ours.engine.give_back(first) == 10 * SECOND
    assert [held.position for held in (await state_of(ours)).held] == [5]


async def test_a_completion_said_twice_hands_out_nothing_that_was_applied_since(
    memory: Memory,
) -> None:
    ours = await standing_before(memory, 3)
    work = (await ours.offer(2)).work
    assert (await ours.complete(work)).work is not None
    again = await ours.complete(work)
    assert (again.released, again.held, again.look_in) == (True, 1, USUAL.lease)
    await ours.offer(9, applied=5)
    again = await ours.complete(work)
    assert (again.accepted, again.released, again.work, again.held) == (True, True, None, 1)


async def test_a_completion_that_is_refused_says_what_is_held(memory: Memory) -> None:
    ours = await standing_before(memory, 3)
    work = (await ours.offer(2)).work
    done = await ours.complete(work)
    assert done.look_in == USUAL.lease
    assert (await ours.complete(done.work)).accepted
    await ours.offer(7)
    refused = await ours.complete(work)
    assert (refused.accepted, refused.held) == (False, 1)
    assert refused.accepted is False


# Offers


async def test_work_before_what_is_held_says_when_to_look(memory: Memory) -> None:
    ours = await standing_before(memory, 3)
    answer = await ours.offer(2)
    assert (answer.outcome, answer.held, answer.look_in) == ("process", 1, USUAL.lease)


@pytest.mark.parametrize(("position", "outcome"), [(3, "held"), (1, "duplicate")])
async def test_an_offer_that_got_other_work_is_answered_so_again(
    memory: Memory, position: int, outcome: str
) -> None:
    ours, dead = await standing_before(memory), await worker(memory, "dead")
    await dead.offer(2)
    await ours.offer(2)
    ours.passes(30)
    offer = ours.made(position)
    first, again = [(await ours.engine.offer([offer]))[0] for _ in range(2)]
    assert (first.outcome, first.again) == (outcome, False)
    assert first.work is not None
    assert (first.work.key, first.work.position) == (KEY, 2)
    assert (again.outcome, again.again) == (outcome, outcome == "held")
    assert again.again is not None
    assert (again.work, again.held) == (first.work, first.held)
    assert again.look_in == first.look_in == USUAL.lease


async def test_a_late_offer_is_answered_so_again(memory: Memory) -> None:
    ours = await standing_before(memory, 3)
    ours.passes(180)
    await ours.drained((await ours.look()).work)
    late = ours.made(2)
    first, again = [(await ours.engine.offer([late]))[0] for _ in range(2)]
    assert first == again
    assert first.work is not None
    assert (first.outcome, first.work.late) == ("process", True)


async def test_a_late_result_does_not_wait_for_a_gap_whose_worker_died(memory: Memory) -> None:
    ours = await standing_before(memory, 3)
    ours.passes(180)
    await ours.drained((await ours.look()).work)
    await ours.offer(5)
    ours.passes(180)
    assert gap_of((await ours.look()).work) == [4]  # and its worker dies
    ours.passes(30)
    answer = await ours.offer(2)
    assert answer.work is not None
    assert (answer.outcome, answer.work.late) == ("process", True)


async def test_what_is_given_up_is_remembered_from_when_it_was_applied(memory: Memory) -> None:
    settings = replace(USUAL, remember=25 * SECOND)
    ours = await standing_before(memory, 3, settings=settings)
    ours.passes(180)
    work = (await ours.look()).work
    ours.passes(20)
    await ours.drained(work)
    ours.passes(10)
    assert (await ours.offer(2)).outcome == "process"


async def test_a_key_whose_gap_was_filled_is_parked_no_more(memory: Memory) -> None:
    ours = await standing_before(memory, 3, 6, settings=PARKING)
    ours.passes(180)
    await ours.look()
    assert await ours.process(2) == [2, 3]
    looked = await ours.look()
    assert (looked.work, looked.look_in) == (None, 10 * SECOND)


# What a person gives up


async def test_a_drain_gives_up_every_gap_and_says_who(memory: Memory) -> None:
    ours = await standing_before(memory, 3, 6, settings=PARKING)
    ours.passes(180)
    await ours.look()
    assert (await state_of(ours)).parked is True
    await ours.engine.drain(KEY)
    assert (await state_of(ours)).parked is False
    done = await ours.drained((await ours.look()).work)
    assert [gap_of(work) for work in done] == [[2], [4, 5]]
    assert {work.gap and work.gap.why for work in done} == {Why.OPERATOR}
    assert (await state_of(ours)).jump is None


async def test_a_drain_ends_the_pause_of_what_was_given_back(memory: Memory) -> None:
    ours = await worker(memory)
    offer = ours.made(1)
    await ours.engine.offer([offer])
    await ours.engine.give_back(offer)
    assert (await ours.look()).work is None
    await ours.engine.drain(KEY)
    assert positions(await ours.drained((await ours.look()).work)) == [1]


# How far the breaker goes


@pytest.mark.parametrize(
    ("early", "late", "drained"),
    [
        ((3,), (5, 6), [3]),  # the source may still have 4
        ((3, 6), (4,), [3, 4, 6]),  # it has passed 5, and before 4 nothing is missing
        ((3, 5), (7,), [3, 5]),
    ],
)
async def test_the_breaker_goes_up_to_a_gap_that_the_source_may_still_fill(
    memory: Memory, early: tuple[int, ...], late: tuple[int, ...], drained: list[int]
) -> None:
    ours = await standing_before(memory, *early, settings=replace(USUAL, breaker=3))
    reached = memory.clock.now()
    ours.passes(1)
    answers = [await ours.offer(position, caught_up=reached) for position in late]
    assert [answer.given_up for answer in answers] == [None] * (len(late) - 1) + [Why.BREAKER]
    assert positions(await ours.drained(answers[-1].work)) == drained


async def test_with_as_many_as_can_be_held_the_breaker_goes_to_the_end(memory: Memory) -> None:
    few = replace(USUAL, breaker=3, breaker_at_most=5)
    behind = memory.clock.now() - SECOND
    ours = await standing_before(memory, settings=few)
    answers = [await ours.offer(position, caught_up=behind) for position in (3, 5, 7, 9, 11)]
    assert [answer.given_up for answer in answers] == [None] * 4 + [Why.BREAKER]
    assert positions(await ours.drained(answers[-1].work)) == [3, 5, 7, 9, 11]


async def test_what_is_ready_and_paused_trips_no_breaker(memory: Memory) -> None:
    ours = await standing_before(memory, 3, 4, settings=replace(USUAL, breaker=3))
    ours.passes(180)
    work = (await ours.look()).work
    assert work is not None
    await ours.engine.give_back(ours.made(3, token=work.token))
    answer = await ours.offer(6)
    assert (answer.held, answer.given_up, answer.look_in) == (3, None, 10 * SECOND)


# How a key stands


def order_of(ours: Worker, memory: Memory) -> ResultOrder:
    return ResultOrder(ours.engine, memory.clock, Seeded())


@pytest.mark.parametrize(
    ("on_gap", "on_late", "fill"),
    [(OnGap.BACKFILL, OnLate.RETRACT, True), (OnGap.SKIP, OnLate.DROP, False)],
)
async def test_a_key_that_waits_says_for_what_since_when_and_until_when(
    memory: Memory, on_gap: OnGap, on_late: OnLate, *, fill: bool
) -> None:
    settings = replace(USUAL, on_gap=on_gap, on_late=on_late)
    ours = await standing_before(memory, 4, settings=settings)
    since = memory.clock.now()
    ours.passes(5)
    stands = (await order_of(ours, memory).explain(KEY)).standing
    assert (stands.mode, stands.head, stands.flight) == ("waiting", 4, None)
    assert stands.missing == Gap(2, 3, 1, Why.TIMEOUT, fill)
    assert (stands.since, stands.gives_up) == (since, since + USUAL.give_up_after)


async def test_a_key_waits_longest_for_a_result_that_was_started(memory: Memory) -> None:
    ours = await worker(memory)
    await ours.offer(1)
    await ours.offer(2)
    ours.passes(30)
    await ours.look()
    stands = (await order_of(ours, memory).explain(KEY)).standing
    assert stands.gives_up == memory.clock.now() + USUAL.gap_at_most


async def test_a_key_that_does_not_wait_for_a_gap_gives_up_nothing(memory: Memory) -> None:
    ours = await worker(memory)
    offer = ours.made(1)
    await ours.engine.offer([offer])
    await ours.offer(2)
    since = memory.clock.now()
    order = order_of(ours, memory)
    stands = (await order.explain(KEY)).standing
    assert (stands.mode, stands.head, stands.since) == ("in flight", 2, since)
    assert stands.flight is not None
    assert (stands.flight.position, stands.gives_up) == (1, None)
    ours.passes(1)
    await ours.engine.give_back(offer)
    ours.passes(9)
    stands = (await order.explain(KEY)).standing
    assert (stands.mode, stands.since, stands.gives_up) == ("paused", since, None)
    ours.passes(1)
    assert (await order.explain(KEY)).standing.mode == "ready"


@pytest.mark.parametrize(("age", "look"), [(70, 72.5), (73, 77.5), (88, 107.5), (110, 147.5)])
async def test_looks_beyond_the_schedule_get_as_far_apart_as_its_last(
    memory: Memory, age: float, look: float
) -> None:
    settings = replace(USUAL, schedule=(10 * SECOND, 20 * SECOND, 40 * SECOND))
    ours = await standing_before(memory, 3, settings=settings)
    behind = memory.clock.now()
    ours.passes(age)
    looked = await ours.look(caught_up=behind)
    assert (looked.given_up, looked.look_in) == (None, (look - age) * SECOND)


@pytest.mark.parametrize(("age", "look_in"), [(1800, 17.5), (1810, 7.5)])
async def test_the_longest_wait_for_a_gap_is_no_time_to_look_once_it_is_over(
    memory: Memory, age: float, look_in: float
) -> None:
    ours = await standing_before(memory, 3)
    ours.passes(age)
    assert (await ours.offer(4)).look_in == look_in * SECOND


# What an engine is told


async def test_an_engine_loads_what_is_in_flight_or_was_handed_out_with_a_gap(
    memory: Memory,
) -> None:
    ours = await standing_before(memory, 3)
    assert (await state_of(ours)).named == frozenset()
    ours.passes(180)
    work = (await ours.look()).work
    assert (await state_of(ours)).named == {3}
    await ours.drained(work)
    assert (await state_of(ours)).named == {3}
    await ours.offer(4)
    assert (await state_of(ours)).named == {3, 4}


async def test_all_times_of_a_key_can_be_read_by_another_clock(memory: Memory) -> None:
    ours = await standing_before(memory, 3, 5)
    now, hour = memory.clock.now(), timedelta(hours=1)
    ours.passes(180)
    await ours.look()
    state = changed(await state_of(ours), gap_since=now, paused_until=now + SECOND)
    later = state.shifted(hour)
    assert later.flight is not None
    assert (later.flight.position, later.flight.until) == (3, now + 210 * SECOND + hour)
    assert [held.since for held in later.held] == [now + hour] * 2
    assert (later.gap_since, later.paused_until) == (now + hour, now + SECOND + hour)
    remembered = now + 180 * SECOND + USUAL.remember
    assert [missed.until for missed in later.missed] == [remembered + hour]
    assert later.shifted(-hour) == state
    assert KeyState(marker=1).shifted(hour) == KeyState(marker=1)


async def test_a_key_counts_what_is_missing(memory: Memory) -> None:
    assert KeyState().missing_before(5, 1, 0) == 0
    missing = KeyState(marker=0).missing_before(10, 3, 5)
    assert (missing, type(missing)) == (1, int)
    assert KeyState(more=2).count == 2
    waiting = await state_of(await standing_before(memory, 3))
    assert waiting.missing_before(3, 1, 0) == 1
    assert waiting.gap_before(waiting.held[0], fill=True) is None


def test_positions_of_a_gap_are_a_step_apart() -> None:
    gap = Gap(3, 23, 10, Why.TIMEOUT)
    assert (gap.count, list(gap.positions())) == (3, [3, 13, 23])
    missed = Missed(3, 23, 10, VirtualClock().now())
    assert [position for position in range(40) if missed.has(position)] == [3, 13, 23]


def test_epochs_end_where_numbers_do() -> None:
    assert in_epoch(1022, 2**42 - 1) == 1023 * 2**42 - 1
    with pytest.raises(ValueError, match="too large"):
        in_epoch(1023, 0)


# What is accepted, and what is not


def test_the_narrowest_settings_are_accepted() -> None:
    settings = SequenceSettings(
        breaker=1, breaker_at_most=1, gap_at_most=USUAL.give_up_after,
        hold_at_most=USUAL.give_up_after,
    )  # fmt: skip
    assert settings.gap_at_most == settings.hold_at_most == 180 * SECOND


@pytest.mark.parametrize("kind", ["lease", "hold_at_most", "gap_at_most", "remember"])
def test_a_number_is_no_duration(kind: str) -> None:
    wrong: dict[str, Any] = {kind: 9_999}
    with pytest.raises(ConfigurationError, match=f"{kind}=9999"):
        SequenceSettings(**wrong)


HIGHEST = 2**52 - 1
BORDERS: list[dict[str, Any]] = [
    {"position": 0}, {"position": HIGHEST}, {"step": 1}, {"step": HIGHEST}, {"begins": -HIGHEST},
    {"begins": HIGHEST}, {"applied": None}, {"applied": -HIGHEST}, {"applied": HIGHEST},
    {"payload": b""},
]  # fmt: skip
BEYOND: list[dict[str, Any]] = [
    {"key": ""}, {"key": None}, {"key": 1}, {"payload": "text"}, {"payload": bytearray()},
    {"position": -1}, {"position": HIGHEST + 1}, {"position": 1.0}, {"position": True}, {"step": 0},
    {"step": HIGHEST + 1}, {"begins": -HIGHEST - 1}, {"begins": HIGHEST + 1}, {"begins": None},
    {"applied": -HIGHEST - 1}, {"applied": HIGHEST + 1}, {"applied": 0.5}, {"applied": True},
]  # fmt: skip


@pytest.mark.parametrize("fields", BORDERS, ids=str)
def test_a_result_at_the_border_is_accepted(fields: dict[str, Any]) -> None:
    result = Result(**{"key": "k", "position": 1, **fields})
    assert all(getattr(result, name) == value for name, value in fields.items())


@pytest.mark.parametrize("fields", BEYOND, ids=str)
def test_a_result_that_no_engine_could_keep_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        Result(**{"key": "k", "position": 1, **fields})
