"""Outage or poison, bad deploy or bad luck."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import ConfigurationError
from headway.core.health import Dependency, FloodGuard, FloodRule, Health, OutageRule

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def failing(*items: str) -> Dependency:
    dependency = Dependency()
    for item in items:
        dependency = dependency.failed(item, NOW)
    return dependency


def test_one_item_that_fails_for_ever_is_no_outage() -> None:
    assert failing(*["a"] * 100).health is Health.SUSPECTED


def test_five_different_items_in_a_row_are_an_outage() -> None:
    assert failing("a", "b", "c", "d").health is Health.SUSPECTED
    assert failing("a", "b", "c", "d", "e").health is Health.DOWN


def test_a_success_between_them_ends_the_suspicion() -> None:
    dependency = failing("a", "b", "c", "d").succeeded()
    assert dependency.health is Health.WELL
    assert dependency.failed("e", NOW).health is Health.SUSPECTED


def test_one_probe_goes_at_a_time_and_they_get_rarer() -> None:
    dependency = failing(*"abcde")
    assert not dependency.may_probe(NOW)
    now, pauses = NOW, []
    for _ in range(8):
        start = now
        while not dependency.may_probe(now):
            now += SECOND
        dependency = dependency.probing(now)
        assert not dependency.may_probe(now)
        pauses.append((now - start).total_seconds())
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def test_a_successful_probe_ends_the_outage() -> None:
    dependency = failing(*"abcde").probing(NOW + SECOND).succeeded()
    assert dependency == Dependency()


@given(st.integers(0, 10_000))
def test_the_pause_between_probes_never_overflows(probes: int) -> None:
    dependency = Dependency(down_since=NOW, probes=probes).probing(NOW)
    assert dependency.next_probe is not None
    assert dependency.next_probe - NOW <= OutageRule().probe_at_most


def test_a_rule_that_counts_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="distinct=0 is not accepted"):
        OutageRule(distinct=0)


def test_a_stream_of_permanent_failures_pauses_the_service() -> None:
    guard = FloodGuard()
    for number in range(20):
        assert guard.may_take(NOW)
        guard.ended(NOW + number * SECOND, permanent=True)
    assert not guard.may_take(NOW + 20 * SECOND)


def test_nineteen_do_not() -> None:
    guard = FloodGuard()
    for number in range(19):
        guard.ended(NOW + number * SECOND, permanent=True)
    assert guard.may_take(NOW + 20 * SECOND)


def test_half_of_all_is_not_more_than_half() -> None:
    guard = FloodGuard()
    for number in range(100):
        guard.ended(NOW, permanent=number % 2 == 0)
    assert guard.may_take(NOW)


def test_a_success_never_sets_off_a_pause() -> None:
    guard = FloodGuard()
    guard.ended(NOW, permanent=True, count=15)  # then it is mended, and they are sent again
    for number in range(5):
        guard.ended(NOW + number * SECOND, permanent=False)
    assert guard.paused_since is None
    guard.ended(NOW + 6 * SECOND, permanent=True)
    assert guard.paused_since == NOW + 6 * SECOND


def test_failures_spread_over_hours_are_no_flood() -> None:
    guard = FloodGuard()
    for number in range(100):
        guard.ended(NOW + number * timedelta(minutes=5), permanent=True)
    assert guard.paused_since is None


def test_a_paused_service_takes_one_probe_a_minute_until_one_succeeds() -> None:
    guard = FloodGuard(FloodRule(at_least=1))
    guard.ended(NOW, permanent=True)
    taken = [second for second in range(181) if guard.may_take(NOW + second * SECOND)]
    assert taken == [60, 120, 180]
    guard.ended(NOW + 181 * SECOND, permanent=True)
    assert not guard.may_take(NOW + 182 * SECOND)
    guard.ended(NOW + 240 * SECOND, permanent=False)
    assert guard.may_take(NOW + 240 * SECOND)


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=60))
def test_the_guard_counts_what_lies_in_its_window(ends: list[tuple[int, bool]]) -> None:
    guard, now, seen = FloodGuard(), NOW, []
    for wait, permanent in ends:
        if guard.paused_since is not None:
            return
        now += wait * SECOND
        seen.append((now, permanent))
        guard.ended(now, permanent=permanent)
        window = [one for at, one in seen if now - at <= timedelta(minutes=1)]
        flooded = len(window) >= 20 and sum(window) * 2 > len(window)
        assert (guard.paused_since is not None) is (flooded and permanent)
