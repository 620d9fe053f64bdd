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


def test_a_permanent_failure_is_dead_lettered_at_once() -> None:
    action = decided(diagnosis(Verdict.PERMANENT))
    assert action == DeadLetter(Reason.NON_RETRYABLE)


@pytest.mark.parametrize("health", Health)
def test_a_permanent_failure_does_not_wait_for_a_dependency(health: Health) -> None:
    action = decided(diagnosis(Verdict.PERMANENT), attempts=9, health=health)
    assert action == DeadLetter(Reason.NON_RETRYABLE)


@pytest.mark.parametrize("verdict", RETRYABLE)
def test_any_other_failure_is_retried_after_the_backoff(verdict: Verdict) -> None:
    assert decided(diagnosis(verdict), attempts=3) == RetryLater(NOW + 4 * TENTH, 4 * TENTH)


@pytest.mark.parametrize("verdict", RETRYABLE)
def test_the_last_attempt_is_not_followed_by_another(verdict: Verdict) -> None:
    assert isinstance(decided(diagnosis(verdict), attempts=4), RetryLater)
    for attempts in (5, 6, 500):
        action = decided(diagnosis(verdict), attempts=attempts)
        assert action == DeadLetter(Reason.MAX_ATTEMPTS_EXCEEDED)


def test_one_attempt_means_no_retry() -> None:
    action = decided(diagnosis(), policy(max_attempts=1))
    assert action == DeadLetter(Reason.MAX_ATTEMPTS_EXCEEDED)


def test_the_draw_reaches_the_backoff() -> None:
    jittered = policy(backoff=Exponential(base=TENTH, cap=timedelta(seconds=1)))
    assert decided(diagnosis(), jittered, draw=0.25) == RetryLater(NOW + TENTH * 0.25, TENTH * 0.25)


def test_the_wait_counts_against_the_ttl() -> None:
    limited = policy(ttl=timedelta(seconds=60))
    just_in_time = timedelta(seconds=60) - TENTH
    assert isinstance(decided(diagnosis(), limited, age=just_in_time), RetryLater)
    too_late = just_in_time + timedelta(microseconds=1)
    assert decided(diagnosis(), limited, age=too_late) == DeadLetter(Reason.TTL_EXCEEDED)


def test_exhausted_attempts_are_the_reason_even_when_time_is_up_too() -> None:
    action = decided(
        diagnosis(), policy(ttl=timedelta(seconds=1)), attempts=5, age=timedelta(hours=1)
    )
    assert action == DeadLetter(Reason.MAX_ATTEMPTS_EXCEEDED)


def test_time_spent_parked_is_given_back() -> None:
    limited = policy(ttl=timedelta(seconds=60))
    hour = timedelta(hours=1)
    assert decided(diagnosis(), limited, age=hour) == DeadLetter(Reason.TTL_EXCEEDED)
    assert isinstance(
        decided(diagnosis(), limited, age=hour, parked=hour - timedelta(seconds=59)), RetryLater
    )
    assert decided(
        diagnosis(), limited, age=hour, parked=hour - timedelta(seconds=60)
    ) == DeadLetter(Reason.TTL_EXCEEDED)


@pytest.mark.parametrize(
    "asked", [timedelta(seconds=7), NOW + timedelta(seconds=7)], ids=["seconds", "date"]
)
def test_a_longer_pause_that_was_asked_for_is_kept(asked: timedelta | datetime) -> None:
    seven = timedelta(seconds=7)
    assert decided(diagnosis(retry_after=asked)) == RetryLater(NOW + seven, seven)


@pytest.mark.parametrize(
    "asked",
    [timedelta(), timedelta(milliseconds=99), NOW, NOW - timedelta(days=1)],
    ids=["none", "short", "now", "past"],
)
def test_a_shorter_pause_than_the_backoff_is_not(asked: timedelta | datetime) -> None:
    assert decided(diagnosis(retry_after=asked)) == RetryLater(NOW + TENTH, TENTH)


def test_a_pause_that_was_asked_for_counts_against_the_ttl() -> None:
    limited = policy(ttl=timedelta(seconds=60))
    assert isinstance(decided(diagnosis(retry_after=timedelta(seconds=60)), limited), RetryLater)
    action = decided(diagnosis(retry_after=timedelta(seconds=61)), limited)
    assert action == DeadLetter(Reason.TTL_EXCEEDED)


@pytest.mark.parametrize("verdict", RETRYABLE)
def test_work_is_parked_while_its_dependency_is_down(verdict: Verdict) -> None:
    limited = policy(ttl=timedelta(seconds=60))
    action = decided(
        diagnosis(verdict), limited, attempts=500, age=timedelta(hours=9), health=Health.DOWN
    )
    assert action == Park("a.rule")


def test_a_suspected_dependency_parks_nothing() -> None:
    assert isinstance(decided(diagnosis(), health=Health.SUSPECTED), RetryLater)


@pytest.mark.parametrize("count", [0, -1, 2.5, float("nan"), float("inf"), "5", None])
def test_a_limit_of_attempts_that_is_no_count_is_refused(count: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        policy(max_attempts=count)
    assert str(refusal.value) == (
        f"max_attempts={count!r} is not accepted: "
        "the first try counts, so use a whole number from 1"
    )


@pytest.mark.parametrize("ttl", [timedelta(), timedelta(seconds=-1), 60, "60"])
def test_a_ttl_that_is_no_positive_duration_is_refused(ttl: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        policy(ttl=ttl)
    assert str(refusal.value) == (
        f"ttl={ttl!r} is not accepted: use a positive timedelta, or None for no limit"
    )


@pytest.mark.parametrize("backoff", [0.5, timedelta(seconds=1), None])
def test_a_backoff_that_knows_no_delay_is_refused(backoff: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        policy(backoff=backoff)
    assert str(refusal.value) == (
        f"backoff={backoff!r} is not accepted: use Exponential(...) or Stepped(...)"
    )


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
