"""Which settings a retry takes, and what it says to those that it does not."""

from datetime import timedelta
from typing import Any

import pytest

from headway import ConfigurationError, RetryConfig, retry, retry_on_oc000
from headway.assembly.retrying import On
from headway.retrying import DEFAULT_CLASSIFIER, Stepped, Verdict, rules_for
from headway.testing.clock import VirtualClock

AT_ONCE = Stepped(steps=(timedelta(),))


def calls_after(error: Exception, on: On) -> int:
    """Count the calls of a function that fails once."""
    calls = 0

    @retry(on=on, backoff=AT_ONCE)
    def fail_once() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise error

    try:
        fail_once()
    except type(error):
        assert calls == 1
    return calls


def test_on_names_the_exceptions_to_retry_and_makes_all_others_permanent() -> None:
    lost = ConnectionResetError()
    assert calls_after(KeyError(), on=LookupError) == 2
    assert calls_after(lost, on=LookupError) == 1
    assert calls_after(ValueError(), on=(KeyError, ValueError)) == 2
    assert calls_after(lost, on=(KeyError, ValueError)) == 1


def test_on_sees_through_causes_as_the_catalogue_does() -> None:
    error = RuntimeError("wrapped")
    error.__cause__ = KeyError("inside")
    assert calls_after(error, on=KeyError) == 2


def test_on_may_be_a_classifier_of_ones_own() -> None:
    own = DEFAULT_CLASSIFIER.before([rules_for((TypeError,), Verdict.TRANSIENT)])
    assert calls_after(TypeError(), on=own) == 2
    assert calls_after(ValueError(), on=own) == 1


@pytest.mark.parametrize(
    "on", [(), 5, "ConnectionError", (ConnectionError, "x"), KeyboardInterrupt, BaseException]
)
def test_on_that_names_no_exceptions_is_refused(on: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"on=.* is not accepted: name exception classes"):
        retry(on=on)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_attempts": 0}, "max_attempts=0 is not accepted: the first try counts"),
        ({"max_attempts": "5"}, "max_attempts='5' is not accepted: the first try counts"),
        ({"ttl": timedelta()}, r"ttl=datetime.timedelta\(0\) is not accepted: use a positive"),
        ({"ttl": 60}, "ttl=60 is not accepted: use a positive timedelta, or None for no limit"),
        ({"backoff": 0.5}, r"backoff=0.5 is not accepted: use Exponential\(...\) or Stepped"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_any_call(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        retry(**given)


@pytest.mark.parametrize(
    "given",
    [
        {"min_wait": -0.1},
        {"min_wait": 3.0},
        {"max_wait": float("nan")},
        {"max_wait": float("inf")},
        {"max_wait": 1e300},
    ],
)
def test_waits_of_oc000_that_cannot_work_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"min_wait=.*, max_wait=.* are not accepted: use seconds, with 0 <= min_wait <= max",
    ):
        retry_on_oc000(**given)


def test_oc000_without_parentheses_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(ConfigurationError, match=r"parentheses: @retry_on_oc000\(\) or "):
        retry_on_oc000(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="max_attempts=0 is not accepted"):
        retry_on_oc000(stop_after=0)


def test_a_whole_policy_may_be_given() -> None:
    calls = []
    config = RetryConfig.from_mapping({"RETRY_MAX_ATTEMPTS": "2"})

    @retry(policy=config.policy(), clock=VirtualClock())
    def fail() -> None:
        calls.append(1)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        fail()
    assert len(calls) == 3
