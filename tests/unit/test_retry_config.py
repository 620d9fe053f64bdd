"""Retry settings: every documented name, its default, its bounds, and names that are misspelt."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway import ConfigurationError, RetryConfig, RetryPolicy
from headway.retrying import Exponential, FullJitter

NAMES = ("MAX_ATTEMPTS", "BASE_DELAY_MS", "BACKOFF_FACTOR", "MAX_DELAY_SECONDS", "TTL_MINUTES")
OTHER_UNITS = ("MAX_DELAY_MS", "TTL_SECONDS")


def refusal(given: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        RetryConfig.from_mapping(given)
    return str(refused.value)


def test_the_documented_defaults_are_in_force() -> None:
    documented = dict(zip(NAMES, ("8", "250", "2.0", "60", "30"), strict=True))
    given = {f"RETRY_{name}": value for name, value in documented.items()}
    assert RetryConfig.from_mapping(given) == RetryConfig.from_mapping({}) == RetryConfig()
    backoff = Exponential(
        base=timedelta(milliseconds=250),
        factor=2.0,
        cap=timedelta(seconds=60),
        jitter=FullJitter(),
    )
    # Eight retries are nine calls.
    expected = RetryPolicy(max_attempts=9, backoff=backoff, ttl=timedelta(minutes=30))
    assert RetryConfig().policy() == expected
    assert RetryConfig(max_attempts=0).policy().max_attempts == 1


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("MAX_ATTEMPTS", "3", "max_attempts", 3),
        ("MAX_ATTEMPTS", "0", "max_attempts", 0),
        ("BASE_DELAY_MS", "12.5", "base_delay", timedelta(microseconds=12_500)),
        ("BACKOFF_FACTOR", "1.5", "backoff_factor", 1.5),
        ("MAX_DELAY_SECONDS", " 90 ", "max_delay", timedelta(seconds=90)),
        ("MAX_DELAY_MS", "750", "max_delay", timedelta(milliseconds=750)),
        ("TTL_MINUTES", "0.5", "ttl", timedelta(seconds=30)),
        ("TTL_SECONDS", "45", "ttl", timedelta(seconds=45)),
    ],
)
@pytest.mark.parametrize("prefix", ["RETRY_", "EVENT_RETRY_"])
def test_every_name_is_read_under_both_prefixes(
    prefix: str, name: str, text: str, field: str, value: object
) -> None:
    assert getattr(RetryConfig.from_mapping({prefix + name: text}), field) == value


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"EVENT_RETRY_MAX_ATTEMPTS": "7", "RETRY_MAX_ATTEMPTS": "three"}, "max_attempts", 7),
        ({"EVENT_RETRY_MAX_ATTEMPTS": " ", "RETRY_MAX_ATTEMPTS": "3"}, "max_attempts", 3),
        ({"RETRY_TTL_MINUTES": ""}, "ttl", timedelta(minutes=30)),
        ({"RETRY_TTL_SECONDS": "60", "RETRY_TTL_MINUTES": "5"}, "ttl", timedelta(minutes=5)),
        (
            {"RETRY_MAX_DELAY_MS": "1000", "RETRY_MAX_DELAY_SECONDS": "20"},
            "max_delay",
            timedelta(seconds=20),
        ),
        (
            {"EVENT_RETRY_MAX_DELAY_MS": "1000", "RETRY_MAX_DELAY_SECONDS": "20"},
            "max_delay",
            timedelta(seconds=1),
        ),
    ],
    ids=["event first", "empty is unset", "all empty", "ttl", "delay", "prefix before unit"],
)
def test_of_several_names_one_is_taken(given: dict[str, str], field: str, value: object) -> None:
    assert getattr(RetryConfig.from_mapping(given), field) == value


REFUSED = {
    "MAX_ATTEMPTS": (["-1", "10001", "8.0", "eight"], "whole number from 0 to 10000"),
    "BASE_DELAY_MS": (["-1", "nan", "250ms", "1e400"], "milliseconds from 0 to 8.64e+07"),
    "BACKOFF_FACTOR": (["0.9", "1001", "inf", "double"], "from 1 to 1000"),
    "MAX_DELAY_SECONDS": (["-0.1", "86401"], "seconds from 0 to 86400"),
    "MAX_DELAY_MS": (["-1", "86400001"], "milliseconds from 0 to 8.64e+07"),
    "TTL_MINUTES": (["0", "-5", "525601"], "minutes from 0.001 to 525600"),
    "TTL_SECONDS": (["0", "half an hour"], "seconds from 0.05 to 3.1536e+07"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("prefix", ["RETRY_", "EVENT_RETRY_"])
def test_a_bad_value_is_refused_with_its_name_the_value_and_its_bounds(
    prefix: str, name: str
) -> None:
    texts, bounds = REFUSED[name]
    for text in texts:
        said = refusal({prefix + name: text})
        assert said.startswith(f"{prefix}{name}={text!r} ")
        assert said.endswith(bounds)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("RETRY_MAX_ATTEMPT", "RETRY_MAX_ATTEMPTS"),
        ("RETRY_MAX_ATEMPTS", "RETRY_MAX_ATTEMPTS"),
        ("RETRY_MAX_ATTMEPTS", "RETRY_MAX_ATTEMPTS"),
        ("RETRY_BASE_DELAY_SM", "RETRY_BASE_DELAY_MS"),
        ("RETRY_MAX_DELAY_SECOND", "RETRY_MAX_DELAY_SECONDS"),
        ("RETRY_TTL_SEKONDS", "RETRY_TTL_SECONDS"),
        ("RETRY_BASE_DELAY", "RETRY_BASE_DELAY_MS"),
        ("RETRY_BASE_DELAY_SECONDS", "RETRY_BASE_DELAY_MS"),
        ("EVENT_RETRY_BASE_DELAY_S", "EVENT_RETRY_BASE_DELAY_MS"),
        ("RETRY_TTL_HOURS", "RETRY_TTL_MINUTES"),
        ("retry_max_attempts", "RETRY_MAX_ATTEMPTS"),
        ("Event_Retry_Max_Attempts", "EVENT_RETRY_MAX_ATTEMPTS"),
        ("EVENT_RETRY_TLL_MINUTES", "EVENT_RETRY_TTL_MINUTES"),
    ],
)
def test_a_name_that_is_almost_ours_is_refused_with_the_one_that_was_meant(
    given: str, meant: str
) -> None:
    said = refusal({given: "3"})
    assert said.startswith(f"{given} ")
    assert said.endswith(f" {meant}?")


@pytest.mark.parametrize(
    "name",
    [
        "RETRY_JOB_INTERVAL_SECONDS",
        "RETRY_JOB_MAX_ATTEMPTS_ARCHIVES",
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


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("max_attempts", -1, "max_attempts=-1"),
        ("max_attempts", 1.5, "max_attempts=1.5"),
        ("base_delay", timedelta(seconds=-1), "base="),
        ("backoff_factor", 0.5, "factor=0.5"),
        ("ttl", timedelta(), "ttl="),
    ],
)
def test_a_bad_value_given_in_code_is_refused_too(field: str, value: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{named}"):
        RetryConfig(**{field: value})


ANY_NAME = st.sampled_from(
    [prefix + name for prefix in ("RETRY_", "EVENT_RETRY_") for name in (*NAMES, *OTHER_UNITS)]
)


@settings(deadline=None)
@given(
    st.dictionaries(ANY_NAME, st.text(max_size=6) | st.floats().map(str) | st.integers().map(str))
)
def test_any_text_is_either_used_or_refused_by_name(given_settings: dict[str, str]) -> None:
    try:
        policy = RetryConfig.from_mapping(given_settings).policy()
    except ConfigurationError as refused:
        said = str(refused)
    else:
        assert policy.ttl is not None
        return
    name = said.partition("=")[0]
    assert said.startswith(f"{name}={given_settings[name].strip()!r} ")
