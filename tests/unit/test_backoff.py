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

modest = settings(deadline=None, max_examples=200)


def ms(count: float) -> timedelta:
    return timedelta(milliseconds=count)


waits = st.timedeltas(min_value=timedelta(), max_value=timedelta(days=365))
draws = st.floats(min_value=0, max_value=1, exclude_max=True)
retries = st.integers(min_value=1, max_value=100_000)
jitters: st.SearchStrategy[Jitter] = st.one_of(
    st.just(FullJitter()), st.just(NoJitter()), st.builds(AddedJitter, waits)
)
exponentials = st.builds(
    Exponential,
    base=waits,
    factor=st.floats(min_value=1, max_value=1000),
    cap=waits,
    jitter=jitters,
)
stepped = st.builds(
    Stepped, steps=st.lists(waits, min_size=1, max_size=8).map(tuple), jitter=jitters
)
backoffs: st.SearchStrategy[Backoff] = st.one_of(exponentials, stepped)


@pytest.mark.parametrize(
    ("retry", "longest"),
    [(1, 250), (2, 500), (3, 1000), (4, 2000), (5, 4000), (6, 8000), (7, 16_000), (8, 32_000)],
)
def test_the_default_schedule_of_events_is_the_table_of_the_document(
    retry: int, longest: int
) -> None:
    backoff = RetryConfig().policy().backoff
    assert backoff.delay(retry, 0.0) == ms(0)
    assert backoff.delay(retry, 0.5) == ms(longest / 2)
    assert backoff.delay(retry, ALMOST_ONE) == ms(longest)


def test_the_default_schedule_of_events_waits_about_a_minute_at_most() -> None:
    backoff = RetryConfig().policy().backoff
    longest = sum((backoff.delay(retry, ALMOST_ONE) for retry in range(1, 9)), timedelta())
    assert longest == timedelta(seconds=63.75)


def test_the_default_schedule_of_events_never_waits_longer_than_sixty_seconds() -> None:
    backoff = RetryConfig().policy().backoff
    assert backoff.delay(9, ALMOST_ONE) == timedelta(seconds=60)
    assert backoff.delay(500, ALMOST_ONE) == timedelta(seconds=60)


@pytest.mark.parametrize(
    ("retry", "shortest", "longest"),
    [
        (1, 100, 200),
        (2, 200, 300),
        (3, 400, 500),
        (4, 800, 900),
        (5, 1600, 1700),
        (6, 2000, 2000),
        (7, 2000, 2000),
    ],
)
def test_the_schedule_of_transactions_is_the_table_of_the_document(
    retry: int, shortest: int, longest: int
) -> None:
    backoff = Exponential(base=ms(100), cap=ms(2000), jitter=AddedJitter(ms(100)))
    assert backoff.delay(retry, 0.0) == ms(shortest)
    assert backoff.delay(retry, ALMOST_ONE) == ms(longest)


def test_the_cap_holds_for_the_sum_of_pause_and_jitter() -> None:
    backoff = Exponential(base=ms(1950), cap=ms(2000), jitter=AddedJitter(ms(100)))
    assert backoff.delay(1, 0.25) == ms(1975)
    assert backoff.delay(1, 0.75) == ms(2000)


def test_added_jitter_is_a_hundred_milliseconds_unless_said_otherwise() -> None:
    assert AddedJitter() == AddedJitter(ms(100))


def test_exponential_doubles_with_full_jitter_unless_said_otherwise() -> None:
    backoff = Exponential(base=ms(100), cap=ms(10_000))
    assert (backoff.factor, backoff.jitter) == (2.0, FullJitter())


def test_steps_are_taken_in_order_and_the_last_one_repeats() -> None:
    backoff = Stepped(steps=(ms(10), ms(30), ms(20)))
    assert [backoff.delay(retry, 0.9) for retry in (1, 2, 3, 4, 400)] == [
        ms(10),
        ms(30),
        ms(20),
        ms(20),
        ms(20),
    ]


def test_steps_may_have_jitter() -> None:
    assert Stepped(steps=(ms(10),), jitter=FullJitter()).delay(1, 0.5) == ms(5)
    assert Stepped(steps=(ms(10),), jitter=AddedJitter(ms(4))).delay(1, 0.5) == ms(12)


@modest
@given(backoff=exponentials, retry=retries, draw=draws)
def test_no_exponential_wait_is_negative_or_longer_than_the_cap(
    backoff: Exponential, retry: int, draw: float
) -> None:
    assert timedelta() <= backoff.delay(retry, draw) <= backoff.cap


@modest
@given(backoff=stepped, retry=retries, draw=draws)
def test_no_stepped_wait_is_negative_or_longer_than_its_step_and_jitter(
    backoff: Stepped, retry: int, draw: float
) -> None:
    more = backoff.jitter.up_to if isinstance(backoff.jitter, AddedJitter) else timedelta()
    assert timedelta() <= backoff.delay(retry, draw) <= max(backoff.steps) + more


@modest
@given(backoff=exponentials, retry=retries, draw=draws)
def test_no_later_exponential_wait_is_shorter_on_the_same_draw(
    backoff: Exponential, retry: int, draw: float
) -> None:
    assert backoff.delay(retry, draw) <= backoff.delay(retry + 1, draw)


@modest
@given(backoff=backoffs, retry=retries, one=draws, other=draws)
def test_a_higher_draw_never_waits_shorter(
    backoff: Backoff, retry: int, one: float, other: float
) -> None:
    assert backoff.delay(retry, min(one, other)) <= backoff.delay(retry, max(one, other))


@modest
@given(
    base=st.timedeltas(min_value=timedelta(), max_value=timedelta(hours=1)),
    cap=waits,
    retry=st.integers(min_value=1, max_value=20),
    draw=draws,
)
def test_full_jitter_is_the_drawn_share_of_the_pause(
    base: timedelta, cap: timedelta, retry: int, draw: float
) -> None:
    pause = min(base * 2 ** (retry - 1), cap)
    waited = Exponential(base=base, cap=cap).delay(retry, draw)
    assert waited.total_seconds() == pytest.approx(pause.total_seconds() * draw, abs=2e-6)


@pytest.mark.parametrize("retry", [1_000, 10_000, 10**9])
@pytest.mark.parametrize("factor", [1.5, 2, 2.0, 1e308])
def test_a_very_late_retry_waits_for_the_cap_and_does_not_overflow(
    retry: int, factor: float
) -> None:
    backoff = Exponential(base=ms(1), factor=factor, cap=ms(5000), jitter=NoJitter())
    assert backoff.delay(retry, 0.0) == ms(5000)


def test_no_pause_stays_no_pause_however_often_it_doubles() -> None:
    backoff = Exponential(base=timedelta(), cap=ms(5000), jitter=NoJitter())
    assert backoff.delay(10_000, 0.5) == timedelta()


def test_a_factor_of_one_keeps_the_pause() -> None:
    backoff = Exponential(base=ms(70), factor=1.0, cap=ms(5000), jitter=NoJitter())
    assert {backoff.delay(retry, 0.0) for retry in (1, 2, 10_000)} == {ms(70)}


@pytest.mark.parametrize("factor", [0.99, 0.0, -2.0, float("inf"), float("nan")])
def test_a_factor_that_shrinks_or_is_no_number_is_refused(factor: float) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Exponential(base=ms(1), factor=factor, cap=ms(1))
    assert str(refusal.value) == (
        f"factor={factor!r} is not accepted: backoff must not shrink, use a finite number from 1.0"
    )


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda wait: Exponential(base=wait, cap=ms(1)), "base"),
        (lambda wait: Exponential(base=ms(1), cap=wait), "cap"),
        (lambda wait: Stepped(steps=(ms(1), wait)), "steps"),
        (AddedJitter, "up_to"),
    ],
)
def test_a_wait_that_cannot_be_waited_is_refused(build: Callable[[Any], object], name: str) -> None:
    for wait, cure in (
        (ms(-1), "a wait cannot be negative"),
        (timedelta.max, "use at most a hundred years"),
        (0.1, "use a timedelta, such as timedelta(seconds=1)"),
    ):
        with pytest.raises(ConfigurationError) as refusal:
            build(wait)
        assert str(refusal.value) == f"{name}={wait!r} is not accepted: {cure}"


def test_steps_without_a_step_are_refused() -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Stepped(steps=())
    assert str(refusal.value) == "steps=() is not accepted: name at least one wait"
