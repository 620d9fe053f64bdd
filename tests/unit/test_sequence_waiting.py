"""When a key is looked at whose time is over while we are behind the source."""

from datetime import UTC, datetime, timedelta

import pytest

from headway.core.sequence import Sequencer
from headway.core.sequence_waiting import due
from headway.order import SequenceSettings
from headway.testing.ports import KeyState, Look, Offer

NOW = datetime(2000, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
USUAL = SequenceSettings()


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
