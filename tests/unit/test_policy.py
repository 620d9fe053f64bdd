from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway import ConfigurationError, RetryPolicy
from headway.core.action import Action, DeadLetter, Park, RetryLater
from headway.core.health import Health
from headway.retrying import (
    AddedJitter,
    Diagnosis,
    Exponential,
    FullJitter,
    History,
    NoJitter,
    Reason,
    Stepped,
    Verdict,
    decide,
)

NOW = datetime(2024, 2, 29, 12, tzinfo=UTC)
TENTH = timedelta(milliseconds=100)
RETRYABLE = tuple(verdict for verdict in Verdict if verdict is not Verdict.PERMANENT)

modest = settings(deadline=None, max_examples=150)


def diagnosis(
    verdict: Verdict = Verdict.TRANSIENT, retry_after: timedelta | datetime | None = None
) -> Diagnosis:
    return Diagnosis(
        verdict=verdict,
        rule="a.rule",
        error_type="AN_ERROR",
        found=RuntimeError("no"),
        retry_after=retry_after,
    )


def policy(**changes: Any) -> RetryPolicy:
    backoff = Exponential(base=TENTH, cap=timedelta(seconds=10), jitter=NoJitter())
    given: dict[str, Any] = {"max_attempts": 5, "backoff": backoff, "ttl": None}
    return RetryPolicy(**given | changes)


def decided(
    found: Diagnosis,
    rule: RetryPolicy | None = None,
    *,
    attempts: int = 1,
    age: timedelta = timedelta(),
    parked: timedelta = timedelta(),
    health: Health = Health.WELL,
    draw: float = 0.5,
) -> Action:
    history = History(attempts=attempts, first_seen=NOW - age, parked=parked)
    return decide(rule or policy(), history, found, health, now=NOW, draw=draw)


HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
LIMITED = policy(ttl=60 * SECOND)
NO_MORE, TOO_LATE = DeadLetter(Reason.MAX_ATTEMPTS_EXCEEDED), DeadLetter(Reason.TTL_EXCEEDED)


def after(delay: timedelta) -> RetryLater:
    return RetryLater(NOW + delay, delay)


@pytest.mark.parametrize("health", Health)
@pytest.mark.parametrize("attempts", [1, 9])
def test_a_permanent_failure_is_dead_lettered_at_once(health: Health, attempts: int) -> None:
    action = decided(diagnosis(Verdict.PERMANENT), attempts=attempts, health=health)
    assert action == DeadLetter(Reason.NON_RETRYABLE)


@pytest.mark.parametrize("verdict", RETRYABLE)
def test_the_last_attempt_is_not_followed_by_another(verdict: Verdict) -> None:
    found = diagnosis(verdict)
    assert decided(found, attempts=3) == after(4 * TENTH)
    assert decided(found, attempts=4) == after(8 * TENTH)
    for attempts in (5, 6, 500):
        assert decided(found, attempts=attempts) == NO_MORE
    assert decided(found, policy(max_attempts=1)) == NO_MORE
    # Exhausted attempts are the reason even when time is up too.
    assert decided(found, policy(ttl=SECOND), attempts=5, age=HOUR) == NO_MORE


def test_the_draw_reaches_the_backoff() -> None:
    jittered = policy(backoff=Exponential(base=TENTH, cap=SECOND))
    assert decided(diagnosis(), jittered, draw=0.25) == after(TENTH * 0.25)


@pytest.mark.parametrize(
    ("age", "parked", "asked", "expected"),
    [
        (60 * SECOND - TENTH, 0 * SECOND, None, after(TENTH)),
        (60 * SECOND - TENTH + timedelta(microseconds=1), 0 * SECOND, None, TOO_LATE),
        (HOUR, 0 * SECOND, None, TOO_LATE),
        # Time spent parked is given back.
        (HOUR, HOUR - 59 * SECOND, None, after(TENTH)),
        (HOUR, HOUR - 60 * SECOND, None, TOO_LATE),
        # A pause that was asked for counts too.
        (0 * SECOND, 0 * SECOND, 60 * SECOND, after(60 * SECOND)),
        (0 * SECOND, 0 * SECOND, 61 * SECOND, TOO_LATE),
    ],
)
def test_the_wait_counts_against_the_ttl(
    age: timedelta, parked: timedelta, asked: timedelta | None, expected: Action
) -> None:
    found = diagnosis(retry_after=asked)
    assert decided(found, LIMITED, age=age, parked=parked) == expected


@pytest.mark.parametrize("asked", [7 * SECOND, NOW + 7 * SECOND], ids=["seconds", "date"])
def test_a_longer_pause_that_was_asked_for_is_kept(asked: timedelta | datetime) -> None:
    assert decided(diagnosis(retry_after=asked)) == after(7 * SECOND)


@pytest.mark.parametrize(
    "asked",
    [timedelta(), timedelta(milliseconds=99), NOW, NOW - timedelta(days=1)],
    ids=["none", "short", "now", "past"],
)
def test_a_shorter_pause_than_the_backoff_is_not(asked: timedelta | datetime) -> None:
    assert decided(diagnosis(retry_after=asked)) == after(TENTH)


@pytest.mark.parametrize("verdict", RETRYABLE)
def test_work_is_parked_while_its_dependency_is_down(verdict: Verdict) -> None:
    found, late = diagnosis(verdict), 9 * HOUR
    assert decided(found, LIMITED, attempts=500, age=late, health=Health.DOWN) == Park("a.rule")
    assert decided(diagnosis(verdict), health=Health.SUSPECTED) == after(TENTH)


@pytest.mark.parametrize(
    ("name", "value", "cure"),
    [
        *(
            ("max_attempts", value, "a whole number from 1")
            for value in (0, -1, 2.5, float("nan"), float("inf"), "5", None)
        ),
        *(
            ("ttl", value, "a positive timedelta, or None")
            for value in (timedelta(), timedelta(seconds=-1), 60, "60")
        ),
        *(("backoff", value, "Exponential") for value in (0.5, timedelta(seconds=1), None)),
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused(name: str, value: Any, cure: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        policy(**{name: value})
    assert str(refusal.value).startswith(f"{name}={value!r} ")
    assert cure in str(refusal.value)


short_waits = st.timedeltas(min_value=timedelta(), max_value=timedelta(hours=2))
jitters = st.one_of(st.just(FullJitter()), st.just(NoJitter()), st.builds(AddedJitter, short_waits))
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(min_value=1, max_value=60),
    backoff=st.one_of(
        st.builds(
            Exponential,
            base=short_waits,
            factor=st.floats(min_value=1, max_value=10),
            cap=short_waits,
            jitter=jitters,
        ),
        st.builds(
            Stepped, steps=st.lists(short_waits, min_size=1, max_size=5).map(tuple), jitter=jitters
        ),
    ),
    ttl=st.none() | st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=2)),
)


@dataclass(frozen=True)
class Attempt:
    """How one attempt goes, as far as deciding can see."""

    verdict: Verdict
    takes: timedelta
    draw: float
    asked: timedelta | None
    health: Health
    outage: timedelta


attempts = st.builds(
    Attempt,
    verdict=st.sampled_from((*RETRYABLE, *RETRYABLE, *RETRYABLE, Verdict.PERMANENT)),
    takes=st.timedeltas(min_value=timedelta(), max_value=timedelta(minutes=10)),
    draw=st.floats(min_value=0, max_value=1, exclude_max=True),
    asked=st.none() | short_waits,
    health=st.sampled_from((Health.WELL, Health.WELL, Health.SUSPECTED, Health.DOWN)),
    outage=short_waits,
)


@modest
@given(rule=policies, course=st.lists(attempts, min_size=1, max_size=70))
def test_work_that_keeps_failing_ends_within_its_attempts_and_its_time(
    rule: RetryPolicy, course: list[Attempt]
) -> None:
    now = NOW
    parked = timedelta()
    begun = 0
    end: DeadLetter | None = None
    for attempt in course:
        if rule.ttl is not None:
            assert now - NOW - parked <= rule.ttl  # no attempt begins after the end
        begun += 1
        now += attempt.takes
        action = decide(
            rule,
            History(attempts=begun, first_seen=NOW, parked=parked),
            diagnosis(attempt.verdict, attempt.asked),
            attempt.health,
            now=now,
            draw=attempt.draw,
        )
        match action:
            case RetryLater(due=due, delay=delay):
                assert due == now + delay
                assert delay >= (attempt.asked or timedelta())
                now = due
            case Park():
                assert attempt.health is Health.DOWN
                begun -= 1  # nothing is counted against parked work
                now += attempt.outage
                parked += attempt.takes + attempt.outage
            case DeadLetter():
                end = action
                break
    assert begun <= rule.max_attempts
    if end is None:
        stays = sum(attempt.health is not Health.DOWN for attempt in course)
        assert stays < rule.max_attempts  # only an outage keeps work from ending
    elif end.reason is Reason.MAX_ATTEMPTS_EXCEEDED:
        assert begun == rule.max_attempts
    elif end.reason is Reason.TTL_EXCEEDED:
        assert rule.ttl is not None
    else:
        assert any(attempt.verdict is Verdict.PERMANENT for attempt in course)
