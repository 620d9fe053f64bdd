"""Waits between retries: the documented tables, and bounds that hold for every schedule."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway import ConfigurationError, RetryConfig
from headway.retrying import (
    AddedJitter,
    Backoff,
    Exponential,
    FullJitter,
    Jitter,
    NoJitter,
    Stepped,
)

ALMOST_ONE = 1 - 2**-53
modest = settings(deadline=None)


def ms(count: float) -> timedelta:
    return timedelta(milliseconds=count)


waits = st.timedeltas(min_value=timedelta(), max_value=timedelta(days=365))
draws = st.floats(min_value=0, max_value=1, exclude_max=True)
retries = st.integers(min_value=1, max_value=100_000)
jitters: st.SearchStrategy[Jitter] = st.one_of(
    st.just(FullJitter()), st.just(NoJitter()), st.builds(AddedJitter, waits)
)
factors = st.floats(min_value=1, max_value=1000)
exponentials = st.builds(Exponential, base=waits, factor=factors, cap=waits, jitter=jitters)
steps = st.lists(waits, min_size=1, max_size=8).map(tuple)
backoffs: st.SearchStrategy[Backoff] = exponentials | st.builds(
    Stepped, steps=steps, jitter=jitters
)


def test_events_wait_by_the_documented_table_and_never_longer_than_a_minute() -> None:
    backoff = RetryConfig().policy().backoff
    longest = [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]
    for retry, wait in enumerate(longest, 1):
        assert backoff.delay(retry, 0.0) == ms(0)
        assert backoff.delay(retry, 0.5) == ms(wait / 2)
        assert backoff.delay(retry, ALMOST_ONE) == ms(wait)
    assert backoff.delay(500, ALMOST_ONE) == ms(60_000)


def test_transactions_wait_by_the_documented_table() -> None:
    backoff = Exponential(base=ms(100), cap=ms(2000), jitter=AddedJitter(ms(100)))
    assert AddedJitter() == backoff.jitter
    shortest = [backoff.delay(retry, 0.0) for retry in range(1, 8)]
    longest = [backoff.delay(retry, ALMOST_ONE) for retry in range(1, 8)]
    assert shortest == [ms(wait) for wait in (100, 200, 400, 800, 1600, 2000, 2000)]
    assert longest == [ms(wait) for wait in (200, 300, 500, 900, 1700, 2000, 2000)]


def test_the_cap_holds_for_the_sum_of_pause_and_jitter() -> None:
    backoff = Exponential(base=ms(1950), cap=ms(2000), jitter=AddedJitter(ms(100)))
    assert backoff.delay(1, 0.25) == ms(1975)
    assert backoff.delay(1, 0.75) == ms(2000)


def test_steps_are_taken_in_order_and_the_last_one_repeats() -> None:
    backoff = Stepped(steps=(ms(10), ms(30), ms(20)))
    waited = [backoff.delay(retry, 0.9) for retry in (1, 2, 3, 4, 400)]
    assert waited == [ms(wait) for wait in (10, 30, 20, 20, 20)]
    assert Stepped(steps=(ms(10),), jitter=FullJitter()).delay(1, 0.5) == ms(5)
    assert Stepped(steps=(ms(10),), jitter=AddedJitter(ms(4))).delay(1, 0.5) == ms(12)


@modest
@given(backoff=backoffs, retry=retries, one=draws, other=draws)
def test_every_wait_is_within_its_bounds_and_grows_with_retry_and_draw(
    backoff: Any, retry: int, one: float, other: float
) -> None:
    low, high = (backoff.delay(retry, draw) for draw in sorted((one, other)))
    assert timedelta() <= low <= high
    if isinstance(backoff, Exponential):
        assert high <= backoff.cap
        assert low <= backoff.delay(retry + 1, min(one, other))
    else:
        more = backoff.jitter.up_to if isinstance(backoff.jitter, AddedJitter) else timedelta()
        assert high <= max(backoff.steps) + more


@modest
@given(
    base=st.timedeltas(min_value=timedelta(), max_value=timedelta(hours=1)),
    cap=waits,
    retry=st.integers(min_value=1, max_value=20),
    draw=draws,
)
def test_unless_told_otherwise_pauses_double_and_jitter_is_the_drawn_share(
    base: timedelta, cap: timedelta, retry: int, draw: float
) -> None:
    pause = min(base * 2 ** (retry - 1), cap)
    waited = Exponential(base=base, cap=cap).delay(retry, draw)
    assert waited.total_seconds() == pytest.approx(pause.total_seconds() * draw, abs=2e-6)


@pytest.mark.parametrize("retry", [1_000, 10_000, 10**9])
@pytest.mark.parametrize(
    ("base", "factor", "expected"),
    [(1, 1.5, 5000), (1, 2, 5000), (1, 2.0, 5000), (1, 1e308, 5000), (0, 2, 0), (70, 1.0, 70)],
)
def test_a_very_late_retry_does_not_overflow(
    retry: int, base: int, factor: float, expected: int
) -> None:
    backoff = Exponential(base=ms(base), factor=factor, cap=ms(5000), jitter=NoJitter())
    assert backoff.delay(retry, 0.5) == ms(expected)


@pytest.mark.parametrize(
    ("build", "name", "wrong"),
    [
        *(
            (lambda factor: Exponential(base=ms(1), factor=factor, cap=ms(1)), "factor", factor)
            for factor in (0.99, 0.0, -2.0, float("inf"), float("nan"), "2", None)
        ),
        *(
            (lambda jitter: Exponential(base=ms(1), cap=ms(1), jitter=jitter), "jitter", jitter)
            for jitter in (None, dict)
        ),
        *(
            (build, name, wait)
            for wait in (ms(-1), timedelta.max, 0.1)
            for build, name in (
                (lambda wait: Exponential(base=wait, cap=ms(1)), "base"),
                (lambda wait: Exponential(base=ms(1), cap=wait), "cap"),
                (lambda wait: Stepped(steps=(ms(1), wait)), "steps"),
                (AddedJitter, "up_to"),
            )
        ),
        (lambda steps: Stepped(steps=steps), "steps", ()),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused_by_name_and_value(
    build: Callable[[Any], object], name: str, wrong: Any
) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        build(wrong)
    assert str(refusal.value).startswith(f"{name}={wrong!r} ")
