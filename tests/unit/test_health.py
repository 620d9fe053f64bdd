"""Outage or poison, bad deploy or bad luck."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import ConfigurationError
from headway.core.health import Dependency, FloodGuard, Health
from headway.retrying import FloodRule, OutageRule

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def failing(*items: str) -> Dependency:
    dependency = Dependency()
    for item in items:
        dependency = dependency.failed(item, NOW)
    return dependency


def test_five_different_items_in_a_row_are_an_outage() -> None:
    assert failing(*["a"] * 100).health is Health.SUSPECTED
    assert failing(*"abcd").health is Health.SUSPECTED
    assert failing(*"abcde").health is Health.DOWN
    dependency = failing(*"abcd").succeeded()
    assert dependency.health is Health.WELL
    assert dependency.failed("e", NOW).health is Health.SUSPECTED
    assert failing(*"abcde").probing(NOW + SECOND).succeeded() == Dependency()
    with pytest.raises(ConfigurationError, match=r"^distinct=0 "):
        OutageRule(distinct=0)


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


@given(st.integers(0, 10_000))
def test_the_pause_between_probes_never_overflows(probes: int) -> None:
    dependency = Dependency(down_since=NOW, probes=probes).probing(NOW)
    assert dependency.next_probe is not None
    assert dependency.next_probe - NOW <= OutageRule().probe_at_most


def handle(guard: FloodGuard, now: datetime, *, permanent: bool) -> None:
    guard.uncounted += not permanent
    guard.ended(now, permanent=permanent)


@pytest.mark.parametrize(
    ("number", "apart", "every", "pauses"),
    [
        (19, SECOND, 1, None),
        (20, SECOND, 1, NOW + 19 * SECOND),
        (100, 0 * SECOND, 2, None),  # half of all is not more than half
        (100, timedelta(minutes=5), 1, None),
    ],
)
def test_a_stream_of_permanent_failures_pauses(
    number: int, apart: timedelta, every: int, pauses: datetime | None
) -> None:
    guard = FloodGuard()
    for each in range(number):
        assert guard.paused_since is None
        handle(guard, NOW + each * apart, permanent=each % every == every - 1)
    assert guard.paused_since == pauses


def test_a_success_never_sets_off_a_pause() -> None:
    guard = FloodGuard()
    guard.uncounted = 25
    guard.ended(NOW, permanent=25)  # then it is mended, and they are sent again
    for number in range(5):
        handle(guard, NOW + (58 + number) * SECOND, permanent=False)
    assert guard.paused_since is None
    guard = FloodGuard()
    guard.ended(NOW, permanent=19)
    handle(guard, NOW + SECOND, permanent=False)
    assert guard.paused_since is None
    handle(guard, NOW + 2 * SECOND, permanent=True)
    assert guard.paused_since == NOW + 2 * SECOND


def test_a_pause_is_probed_at_once_and_then_less_and_less_often_until_one_succeeds() -> None:
    guard = FloodGuard(FloodRule(at_least=1))
    assert not guard.may_probe(NOW)
    guard.ended(NOW, permanent=1)
    probed = []
    for second in range(250):
        while guard.may_probe(NOW + second * SECOND):
            probed.append(second)
            guard.probing(NOW + second * SECOND)
    assert probed == [0, 0, 0, 0, 0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    guard.ended(NOW + 250 * SECOND, permanent=1)
    assert not guard.may_probe(NOW + 251 * SECOND)
    handle(guard, NOW + 251 * SECOND, permanent=False)
    assert guard.paused_since is None
    guard.probing(NOW + 252 * SECOND)
    assert not guard.may_probe(NOW + timedelta(days=1))


def test_after_a_probe_succeeded_it_takes_twice_as_many_for_an_hour() -> None:
    guard, now = FloodGuard(FloodRule(at_least=3)), NOW
    for needed in (3, 6, 12):
        guard.ended(now, permanent=needed - 1)
        assert guard.paused_since is None
        guard.ended(now, permanent=1)
        assert guard.paused_since == now
        handle(guard, now, permanent=False)
        assert guard.paused_since is None
    now += timedelta(hours=1, seconds=1)
    guard.ended(now, permanent=3)
    assert guard.paused_since == now
    handle(guard, now, permanent=False)
    guard.ended(now, permanent=6)
    guard.resume()
    guard.ended(now, permanent=3)
    assert guard.paused_since == now, "a person said so: it starts afresh"


def test_the_wait_between_probes_never_overflows() -> None:
    guard = FloodGuard(FloodRule(at_least=1))
    guard.ended(NOW, permanent=1)
    for _ in range(2_000):
        guard.probing(NOW)
    assert guard.may_probe(NOW + timedelta(minutes=1))


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=60))
def test_the_guard_counts_what_lies_in_its_window(ends: list[tuple[int, bool]]) -> None:
    guard, now, seen = FloodGuard(), NOW, []
    for wait, permanent in ends:
        if guard.paused_since is not None:
            return
        now += wait * SECOND
        seen.append((now, permanent))
        handle(guard, now, permanent=permanent)
        window = [one for at, one in seen if now - at <= timedelta(minutes=1)]
        flooded = sum(window) >= 20 and sum(window) * 2 > len(window)
        assert (guard.paused_since is not None) is (flooded and permanent)
