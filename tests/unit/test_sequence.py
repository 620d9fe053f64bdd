"""The machine by itself: whatever the order and whoever dies, each result is applied once."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway import ConfigurationError
from headway.core.sequence import Sequencer
from headway.core.sequence_answers import Outcome
from headway.core.sequence_waiting import Mode, due, standing
from headway.order import Gap, OnGap, OnLate, SequenceSettings, Turn, Why
from headway.testing.ports import Completion, KeyState, Look, Missed, Offer, changes, in_epoch

NOW = datetime(2000, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
USUAL = SequenceSettings()


@pytest.mark.parametrize(
    ("senseless", "names"),
    [
        ({"schedule": ()}, "schedule=()"),
        ({"schedule": (SECOND, timedelta())}, "schedule=1 s, 0 s"),
        ({"lease": timedelta()}, "lease"),
        ({"remember": -SECOND}, "remember"),
        ({"breaker": 0}, "breaker=0"),
        ({"breaker_at_most": 9}, "breaker_at_most=9"),
        ({"gap_at_most": 179 * SECOND}, "gap_at_most"),
        ({"hold_at_most": 29 * 60 * SECOND}, "hold_at_most"),
        ({"on_gap": OnGap.SKIP}, "on_late=retract"),
        ({"on_gap": "skip"}, "on_late=retract"),
        ({"on_gap": "PARK"}, "on_gap='PARK'"),
        ({"on_late": None}, "on_late=None"),
        ({"schedule": (5,)}, "schedule=(5,)"),
        ({"schedule": SECOND}, "schedule="),
        ({"lease": 30}, "lease=30"),
        ({"breaker": 10.0}, "breaker=10.0"),
    ],
)
def test_senseless_settings_are_refused(senseless: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(names)):
        SequenceSettings(**senseless)


def test_a_choice_may_be_its_text_and_times_are_scaled_but_no_counts() -> None:
    given: dict[str, Any] = {"on_gap": "park", "on_late": "drop"}
    settings = SequenceSettings(**given)
    assert (settings.on_gap is OnGap.PARK, settings.on_late is OnLate.DROP) == (True, True)
    for factor in (0.0, -1.0):
        with pytest.raises(ConfigurationError, match="schedule"):
            USUAL.scaled(factor)
    scaled = USUAL.scaled(1 / 60)
    assert scaled.give_up_after == 3 * SECOND
    assert (scaled.lease, scaled.hold_at_most) == (SECOND / 2, 60 * SECOND)
    assert (scaled.gap_at_most, scaled.remember) == (30 * SECOND, 1440 * SECOND)
    assert (scaled.breaker, scaled.breaker_at_most) == (10, 100)


WRONG: dict[str, list[Any]] = {
    "position": [-1, 2**52, 1.0, True],
    "step": [0, True],
    "begins": [-(2**52), 0.0, False, None],
    "applied": [2**52, 0.0, False],
    "token": ["", "a|b"],
}


@pytest.mark.parametrize("name", WRONG)
def test_offers_that_no_engine_could_keep_are_refused(name: str) -> None:
    usual: dict[str, Any] = {"key": "k", "position": 1, "payload": b"", "token": "t"}
    for wrong in WRONG[name]:
        with pytest.raises(ValueError, match=name):
            Offer(**{**usual, name: wrong})


def test_epochs_have_room_and_an_end() -> None:
    assert in_epoch(0, 5) == 5
    assert in_epoch(2, 0) > in_epoch(1, 2**42 - 1)
    for epoch, number in ((0, 2**42), (0, -1), (-1, 0), (2**10, 0)):
        with pytest.raises(ValueError, match="too large"):
            in_epoch(epoch, number)


def test_one_position_is_taken_out_of_what_was_missed() -> None:
    state = KeyState(marker=99, missed=(Missed(10, 30, 10, NOW), Missed(50, 50, 1, NOW)))
    left = state.retracted(20).missed
    assert [(m.first, m.last) for m in left] == [(10, 10), (30, 30), (50, 50)]
    left = state.retracted(10).retracted(50).missed
    assert [(m.first, m.last) for m in left] == [(20, 30)]
    assert state.retracted(15) == state


def test_what_was_missed_is_remembered_in_bounds() -> None:
    state = KeyState(marker=0)
    for n in range(100):
        state = state.remembering(Gap(n, n, 1, Why.TIMEOUT), NOW, NOW + SECOND)
    assert [missed.first for missed in state.missed] == [*range(68, 100)]
    later = state.remembering(Gap(200, 200, 1, Why.TIMEOUT), NOW + SECOND, NOW + 2 * SECOND)
    assert [missed.first for missed in later.missed] == [200]


def test_a_key_says_how_it_stands() -> None:
    machine, state = Sequencer(USUAL), KeyState(marker=1)
    assert standing(state, USUAL, NOW).mode is Mode.IDLE
    state, _ = machine.offer(state, _offer(2), NOW)
    assert standing(state, USUAL, NOW).mode is Mode.IN_FLIGHT
    state, _ = machine.offer(state, _offer(2, "u"), NOW)
    assert standing(state, USUAL, NOW + 30 * SECOND).mode is Mode.READY
    state, looked = machine.expire(state, Look("k", "x"), NOW + 30 * SECOND)
    assert looked.work is not None
    state, _ = machine.give_back(state, _offer(2, "x"), NOW + 30 * SECOND)
    seen = standing(state, USUAL, NOW + 30 * SECOND)
    assert (seen.mode, seen.next_look) == (Mode.PAUSED, NOW + 40 * SECOND)


def test_a_key_that_holds_nothing_is_never_due() -> None:
    state, _ = Sequencer().offer(KeyState(), _offer(1), NOW)
    assert due(state, USUAL, NOW) is None
    idle, _ = Sequencer().expire(state, Look("k", "x"), NOW + 30 * SECOND)
    assert idle == KeyState(marker=0)


def test_engines_are_told_what_to_write() -> None:
    machine = Sequencer()
    before = KeyState(marker=1)
    after, _ = machine.offer(before, _offer(3), NOW)
    more, _ = machine.offer(after, _offer(5), NOW)
    for one, other, expected in ((before, after, [3]), (after, more, [5])):
        written, removed = changes(one, other)
        assert ([held.position for held in written], removed) == (expected, [])
    assert changes(after, after) == ([], [])
    assert changes(after, before) == ([], [3])


@pytest.mark.parametrize(
    ("age", "look"),
    [
        (180, 182.5),
        (182, 182.5),
        (182.5, 187.5),
        (187.5, 197.5),
        (257.5, 317.5),
        (258, 317.5),
        (317.5, 377.5),
        (1799, 1800),
    ],
)
def test_past_its_time_a_gap_is_looked_at_on_a_grid(age: float, look: float) -> None:
    state, _ = Sequencer().offer(KeyState(marker=1), Offer("k", 3, b"", "t"), NOW)
    assert due(state, USUAL, NOW + age * SECOND) == NOW + look * SECOND


def test_results_that_come_do_not_put_off_the_look_at_a_gap() -> None:
    """One result a minute, as checks come: a look in a minute from each would never be."""
    machine, behind = Sequencer(), NOW
    state, _ = machine.offer(KeyState(marker=1), Offer("k", 3, b"", "t"), NOW)
    state, looked = machine.expire(state, Look("k", "x", behind), NOW + 180 * SECOND)
    assert (looked.given_up, looked.look_in) == (None, 2.5 * SECOND)
    for position, age in ((4, 220), (5, 240)):
        offer = Offer("k", position, b"", f"t{position}", caught_up=behind)
        state, offered = machine.offer(state, offer, NOW + age * SECOND)
        assert offered.look_in == (257.5 - age) * SECOND


class Run:
    """Workers that take results in any order, die, and come back."""

    def __init__(self, settings: SequenceSettings = USUAL) -> None:
        self.machine = Sequencer(settings)
        self.state = KeyState(marker=0)
        self.now = NOW
        self.tokens = 0
        self.applied: list[int] = []
        self.missed: set[int] = set()
        self.lost: list[int] = []
        """Offered, not held, and in the hands of a worker that died: the source has them still."""

    def offer(self, position: int, *, dies: bool) -> None:
        self.tokens += 1
        self.state, answer = self.machine.offer(
            self.state, _offer(position, f"t{self.tokens}"), self.now
        )
        self.do(answer.work, dies=dies)

    def look(self) -> None:
        self.tokens += 1
        self.state, looked = self.machine.expire(self.state, Look("k", f"t{self.tokens}"), self.now)
        self.do(looked.work, dies=False)

    def do(self, work: Turn | None, *, dies: bool) -> None:
        while work is not None:
            if dies:
                if not work.held:
                    self.lost.append(work.position)
                return
            self.missed |= set(work.gap.positions()) if work.gap else set()
            if work.late:
                self.missed.remove(work.position)
            self.applied.append(work.position)
            done = Completion("k", work.position, work.token)
            self.state, answer = self.machine.complete(self.state, done, self.now)
            assert answer.accepted
            work = answer.work


@settings(max_examples=150, deadline=None)
@given(
    st.permutations(range(1, 13)),
    st.sets(st.integers(0, 11), max_size=4),
    st.integers(1, 13),
)
def test_in_any_order_and_whoever_dies_all_are_applied_once_and_in_order(
    order: list[int], deaths: set[int], duplicate: int
) -> None:
    run = Run(SequenceSettings(breaker=100))
    for turn, position in enumerate([*order, min(duplicate, 12)]):
        run.offer(position, dies=turn in deaths)
        run.now += SECOND
    for _ in range(20):  # the source gives again what nobody finished
        again, run.lost = run.lost, []
        for position in again:
            run.offer(position, dies=False)
        run.now += 4 * SECOND
        run.look()
    assert run.applied == [*range(1, 13)]
    assert not run.missed
    assert run.state == KeyState(marker=12)


@settings(max_examples=150, deadline=None)
@given(st.sets(st.integers(1, 30), min_size=1), st.permutations(range(1, 31)), st.integers(1, 40))
def test_true_misses_are_found_and_late_results_take_them_back(
    never: set[int], order: list[int], pause: int
) -> None:
    run = Run()
    for position in order:
        if position not in never:
            run.offer(position, dies=False)
            run.now += pause * SECOND
            run.look()
    for _ in range(40):
        run.now += 180 * SECOND
        run.look()
    came = set(range(1, 31)) - never
    assert sorted(run.applied) == sorted(came)
    assert run.missed == {n for n in never if n < max(came, default=0)}
    assert not run.state.held
    for position in sorted(run.missed):
        run.offer(position, dies=False)
    assert not run.missed
    assert len(run.applied) == len(set(run.applied))


def test_a_result_with_a_step_of_its_own_looks_back_by_that() -> None:
    machine, state = Sequencer(), KeyState(marker=100)
    for position, step, outcome in (
        (130, 30, Outcome.PROCESS),
        (131, 30, Outcome.PROCESS),
        (129, 30, Outcome.PROCESS),
        (159, 30, Outcome.PROCESS),
        (160, 30, Outcome.HELD),
        (160, 60, Outcome.PROCESS),
    ):
        offer = Offer("k", position, b"", "t", step)
        assert machine.offer(state, offer, NOW)[1].outcome is outcome


def _offer(position: int, name: str = "t") -> Offer:
    return Offer("k", position, b"", name)
