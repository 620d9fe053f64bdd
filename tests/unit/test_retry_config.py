from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway import ConfigurationError, RetryConfig, RetryPolicy
from headway.core.policy import RETRY_SETTINGS
from headway.retrying import Exponential, FullJitter

DOCUMENTED = (
    ("RETRY_MAX_ATTEMPTS", "8", "max_attempts", 8),
    ("RETRY_BASE_DELAY_MS", "250", "base_delay", timedelta(milliseconds=250)),
    ("RETRY_BACKOFF_FACTOR", "2.0", "backoff_factor", 2.0),
    ("RETRY_MAX_DELAY_SECONDS", "60", "max_delay", timedelta(seconds=60)),
    ("RETRY_TTL_MINUTES", "30", "ttl", timedelta(minutes=30)),
)

SWEEPER = (
    "RETRY_JOB_INTERVAL_SECONDS",
    "RETRY_JOB_BASE_DELAY_SECONDS",
    "RETRY_JOB_MAX_DELAY_SECONDS",
    "RETRY_JOB_STUCK_THRESHOLD_HOURS",
    "RETRY_JOB_GRACE_SECONDS",
    "RETRY_JOB_MAX_ATTEMPTS_ARCHIVES",
    "RETRY_JOB_MAX_ATTEMPTS_MESSAGES",
    "RETRY_JOB_MAX_ATTEMPTS_CHUNKS",
    "RETRY_JOB_MAX_ATTEMPTS_THREADS",
)


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        RetryConfig.from_mapping(settings)
    return str(refused.value)


@pytest.mark.parametrize(("name", "text", "field", "value"), DOCUMENTED)
def test_every_documented_default_is_in_force_without_settings(
    name: str, text: str, field: str, value: object
) -> None:
    assert getattr(RetryConfig.from_mapping({}), field) == value
    assert RetryConfig.from_mapping({name: text}) == RetryConfig()


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("RETRY_MAX_ATTEMPTS", "3", "max_attempts", 3),
        ("RETRY_MAX_ATTEMPTS", "0", "max_attempts", 0),
        ("RETRY_BASE_DELAY_MS", "12.5", "base_delay", timedelta(microseconds=12_500)),
        ("RETRY_BACKOFF_FACTOR", "1.5", "backoff_factor", 1.5),
        ("RETRY_MAX_DELAY_SECONDS", " 90 ", "max_delay", timedelta(seconds=90)),
        ("RETRY_MAX_DELAY_MS", "60000", "max_delay", timedelta(seconds=60)),
        ("RETRY_MAX_DELAY_MS", "750", "max_delay", timedelta(milliseconds=750)),
        ("RETRY_TTL_MINUTES", "0.5", "ttl", timedelta(seconds=30)),
        ("RETRY_TTL_SECONDS", "1800", "ttl", timedelta(minutes=30)),
        ("RETRY_TTL_SECONDS", "45", "ttl", timedelta(seconds=45)),
    ],
)
@pytest.mark.parametrize("prefix", ["", "EVENT_"])
def test_every_name_is_read_under_both_prefixes(
    prefix: str, name: str, text: str, field: str, value: object
) -> None:
    assert getattr(RetryConfig.from_mapping({prefix + name: text}), field) == value


def test_event_retry_goes_before_retry() -> None:
    config = RetryConfig.from_mapping({"RETRY_MAX_ATTEMPTS": "3", "EVENT_RETRY_MAX_ATTEMPTS": "7"})
    assert config.max_attempts == 7


def test_the_documented_name_goes_before_the_alternate() -> None:
    config = RetryConfig.from_mapping(
        {
            "RETRY_MAX_DELAY_MS": "1000",
            "RETRY_MAX_DELAY_SECONDS": "20",
            "RETRY_TTL_SECONDS": "60",
            "RETRY_TTL_MINUTES": "5",
        }
    )
    assert (config.max_delay, config.ttl) == (timedelta(seconds=20), timedelta(minutes=5))


def test_an_alternate_under_event_retry_goes_before_a_documented_name_under_retry() -> None:
    config = RetryConfig.from_mapping(
        {"EVENT_RETRY_MAX_DELAY_MS": "1000", "RETRY_MAX_DELAY_SECONDS": "20"}
    )
    assert config.max_delay == timedelta(seconds=1)


def test_a_value_meant_for_another_program_is_not_read_where_ours_is_set() -> None:
    config = RetryConfig.from_mapping(
        {"EVENT_RETRY_MAX_ATTEMPTS": "7", "RETRY_MAX_ATTEMPTS": "three"}
    )
    assert config.max_attempts == 7


def test_an_empty_setting_counts_as_not_set() -> None:
    config = RetryConfig.from_mapping(
        {"EVENT_RETRY_MAX_ATTEMPTS": " ", "RETRY_MAX_ATTEMPTS": "3", "RETRY_TTL_MINUTES": ""}
    )
    assert config == RetryConfig(max_attempts=3)


_COUNT = "use a whole number from 0 to 10000"
_MS = "use a number of milliseconds from 0 to 8.64e+07"
_FACTOR = "use a number from 1 to 1000"
_SECONDS = "use a number of seconds from 0 to 86400"
_TTL_MINUTES = "use a number of minutes from 0.001 to 525600"
_TTL_SECONDS = "use a number of seconds from 0.05 to 3.1536e+07"


@pytest.mark.parametrize(
    ("name", "text", "cure"),
    [
        ("MAX_ATTEMPTS", "-1", _COUNT),
        ("MAX_ATTEMPTS", "10001", _COUNT),
        ("MAX_ATTEMPTS", "8.0", _COUNT),
        ("MAX_ATTEMPTS", "eight", _COUNT),
        ("BASE_DELAY_MS", "-1", _MS),
        ("BASE_DELAY_MS", "nan", _MS),
        ("BASE_DELAY_MS", "250ms", _MS),
        ("BASE_DELAY_MS", "1e400", _MS),
        ("BACKOFF_FACTOR", "0.9", _FACTOR),
        ("BACKOFF_FACTOR", "1001", _FACTOR),
        ("BACKOFF_FACTOR", "inf", _FACTOR),
        ("BACKOFF_FACTOR", "double", _FACTOR),
        ("MAX_DELAY_SECONDS", "-0.1", _SECONDS),
        ("MAX_DELAY_SECONDS", "86401", _SECONDS),
        ("MAX_DELAY_MS", "-1", _MS),
        ("MAX_DELAY_MS", "86400001", _MS),
        ("TTL_MINUTES", "0", _TTL_MINUTES),
        ("TTL_MINUTES", "-5", _TTL_MINUTES),
        ("TTL_MINUTES", "525601", _TTL_MINUTES),
        ("TTL_SECONDS", "0", _TTL_SECONDS),
        ("TTL_SECONDS", "half an hour", _TTL_SECONDS),
    ],
)
@pytest.mark.parametrize("prefix", ["RETRY_", "EVENT_RETRY_"])
def test_a_bad_value_is_refused_with_its_name_the_value_and_the_cure(
    prefix: str, name: str, text: str, cure: str
) -> None:
    assert refusal({prefix + name: text}) == f"{prefix}{name}={text!r} is not accepted: {cure}"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("RETRY_MAX_ATTEMPT", "RETRY_MAX_ATTEMPTS"),
        ("RETRY_MAX_ATEMPTS", "RETRY_MAX_ATTEMPTS"),
        ("RETRY_MAX_ATTMEPTS", "RETRY_MAX_ATTEMPTS"),
        ("RETRY_BASE_DELAY_SM", "RETRY_BASE_DELAY_MS"),
        ("RETRY_BACKOF_FACTOR", "RETRY_BACKOFF_FACTOR"),
        ("RETRY_MAX_DELAY_SECOND", "RETRY_MAX_DELAY_SECONDS"),
        ("RETRY_TTL_MINUTE", "RETRY_TTL_MINUTES"),
        ("RETRY_TTL_SEKONDS", "RETRY_TTL_SECONDS"),
        ("RETRY_BASE_DELAY", "RETRY_BASE_DELAY_MS"),
        ("RETRY_BASE_DELAY_SECONDS", "RETRY_BASE_DELAY_MS"),
        ("EVENT_RETRY_BASE_DELAY_S", "EVENT_RETRY_BASE_DELAY_MS"),
        ("RETRY_TTL_HOURS", "RETRY_TTL_MINUTES"),
        ("retry_max_attempts", "RETRY_MAX_ATTEMPTS"),
        ("Event_Retry_Max_Attempts", "EVENT_RETRY_MAX_ATTEMPTS"),
        ("EVENT_RETRY_MAX_ATTEMPS", "EVENT_RETRY_MAX_ATTEMPTS"),
        ("EVENT_RETRY_TLL_MINUTES", "EVENT_RETRY_TTL_MINUTES"),
    ],
)
def test_a_name_that_is_almost_ours_is_refused_with_the_one_that_was_meant(
    given: str, meant: str
) -> None:
    assert refusal({given: "3"}) == f"{given} is not a setting: did you mean {meant}?"


@pytest.mark.parametrize(
    "name",
    [
        *SWEEPER,
        "EVENT_RETRY_TYPE",
        "RETRY_BACKOFF_SECONDS",
        "RETRY_ENABLED",
        "RETRY_SECONDS",
        "RETRY_AFTER_MS",
        "RETRY_DELAY",
        "retry_count",
        "HTTP_RETRY_MAX_ATTEMPT",
        "PATH",
    ],
)
def test_settings_of_other_programs_are_left_alone(name: str) -> None:
    assert RetryConfig.from_mapping({name: "whatever"}) == RetryConfig()


def test_eight_retries_are_nine_calls() -> None:
    assert RetryConfig().policy() == RetryPolicy(
        max_attempts=9,
        backoff=Exponential(
            base=timedelta(milliseconds=250),
            factor=2.0,
            cap=timedelta(seconds=60),
            jitter=FullJitter(),
        ),
        ttl=timedelta(minutes=30),
    )
    assert RetryConfig(max_attempts=0).policy().max_attempts == 1


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("max_attempts", -1, "max_attempts=-1 is not accepted: use a whole number from 0"),
        ("max_attempts", 1.5, "max_attempts=1.5 is not accepted: use a whole number from 0"),
        (
            "base_delay",
            timedelta(seconds=-1),
            f"base={timedelta(seconds=-1)!r} is not accepted: a wait cannot be negative",
        ),
        (
            "backoff_factor",
            0.5,
            "factor=0.5 is not accepted: backoff must not shrink, use a finite number from 1.0",
        ),
        (
            "ttl",
            timedelta(),
            f"ttl={timedelta()!r} is not accepted: use a positive timedelta, or None for no limit",
        ),
    ],
)
def test_a_bad_value_given_in_code_is_refused_too(field: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RetryConfig(**{field: value})
    assert str(refused.value) == message


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                prefix + setting.name
                for prefix in ("RETRY_", "EVENT_RETRY_")
                for setting in RETRY_SETTINGS
            ]
        ),
        st.text(max_size=6) | st.floats().map(str) | st.integers().map(str),
    )
)
def test_any_text_is_either_used_or_refused_by_name(given_settings: dict[str, str]) -> None:
    try:
        policy = RetryConfig.from_mapping(given_settings).policy()
    except ConfigurationError as refused:
        message = str(refused)
    else:
        assert policy.ttl is not None
        return
    name = message.partition("=")[0]
    value = given_settings[name].strip()
    assert message.startswith(f"{name}={value!r} is not accepted: use a ")
