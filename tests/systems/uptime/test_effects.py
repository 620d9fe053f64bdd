"""What a result does to its monitor, decided without any store."""

import pytest

from headway.systems.uptime.effects import MOST_MISSES, Effect, Missing, Outcome, settle
from headway.systems.uptime.monitors import Detector, Monitor, Subscription
from headway.systems.uptime.results import CheckResult, CheckStatus

MINUTE = 60_000


def monitor(last: int | None, *, began: int = MINUTE) -> Monitor:
    subscription = Subscription("s", interval_since_ms=began)
    return Monitor(subscription, Detector("d", "o"), None if last is None else last * MINUTE)


def effect(minute: int, missing: Missing | None = None, *, detect: bool = False) -> Effect:
    result = CheckResult("g", "s", CheckStatus.SUCCESS, minute * MINUTE)
    return Effect(result, missing, detect=detect)


def minutes(times: tuple[int, ...]) -> list[int]:
    return [time // MINUTE for time in times]


def never(_time: int) -> bool:
    return False


def test_no_miss_is_made_up_for_what_was_applied_meanwhile() -> None:
    missing = Missing(2 * MINUTE, 5 * MINUTE, MINUTE)
    change = settle(monitor(3), effect(6, missing), never)
    assert minutes(change.misses) == [4, 5]


def test_of_a_very_long_gap_only_the_latest_are_made_up() -> None:
    change = settle(monitor(1), effect(MOST_MISSES + 100, detect=True), never)
    assert len(change.misses) == MOST_MISSES
    assert minutes(change.misses)[-1] == MOST_MISSES + 99


@pytest.mark.parametrize(
    ("last", "began", "missed"),
    [
        (1, MINUTE, [2, 3, 4]),
        (4, MINUTE, []),
        (1, 4 * MINUTE, [4]),  # the monitor was switched on again
        (1, 5 * MINUTE, []),
        (None, 3 * MINUTE, [3, 4]),
        (None, 0, []),  # nobody knows when it began
    ],
)
def test_what_is_missing_is_found_by_what_was_applied_last(
    last: int | None, began: int, missed: list[int]
) -> None:
    change = settle(monitor(last, began=began), effect(5, detect=True), never)
    assert minutes(change.misses) == missed
    assert change.outcome is Outcome.APPLIED


def test_what_was_deleted_meanwhile_is_gone() -> None:
    assert settle(None, effect(1), never).outcome is Outcome.GONE
    unwatched = Monitor(Subscription("s"))
    assert settle(unwatched, effect(1), never).outcome is Outcome.GONE


def test_nothing_moves_back() -> None:
    before = monitor(5)
    for outcome, is_missed in ((Outcome.RETRACTED, True), (Outcome.DUPLICATE, False)):
        change = settle(before, effect(3), lambda _time, answer=is_missed: answer)  # type: ignore[misc]
        assert change.outcome is outcome
        assert change.monitor == before
