from datetime import timedelta

import pytest

from headway import ConfigurationError, Lifecycle, RetryConfig
from headway.core.gateway_url import GatewayUrl
from headway.core.sweep_settings import SWEEP_SETTINGS
from headway.settings import SweepSettings

DOCUMENTED = {
    "RETRY_JOB_INTERVAL_SECONDS": "900",
    "RETRY_JOB_BASE_DELAY_SECONDS": "300",
    "RETRY_JOB_MAX_DELAY_SECONDS": "3600",
    "RETRY_JOB_STUCK_THRESHOLD_HOURS": "24",
    "RETRY_JOB_MAX_ATTEMPTS_ARCHIVES": "3",
    "RETRY_JOB_MAX_ATTEMPTS_MESSAGES": "3",
    "RETRY_JOB_MAX_ATTEMPTS_CHUNKS": "5",
    "RETRY_JOB_MAX_ATTEMPTS_THREADS": "5",
}


def test_the_defaults_are_the_documented_ones() -> None:
    given, default = SweepSettings.from_mapping(DOCUMENTED), SweepSettings.from_mapping({})
    for collection in ("archives", "messages", "chunks", "threads"):
        assert given.rule(Lifecycle(collection)) == default.rule(Lifecycle(collection))
    assert given.interval == default.interval == timedelta(minutes=15)
    assert default.limit == 10_000
    assert default.cap == 1_000
    assert default.claim == timedelta(minutes=1)
    assert default.grace == timedelta(minutes=15)
    assert (default.leader, default.newest_first, default.rate) == (True, True, 0)


def test_every_setting_is_read_for_real() -> None:
    settings = SweepSettings.from_mapping(
        {
            "RETRY_JOB_INTERVAL_SECONDS": "60",
            "RETRY_JOB_BASE_DELAY_SECONDS": "10",
            "RETRY_JOB_MAX_DELAY_SECONDS": "100",
            "RETRY_JOB_STUCK_THRESHOLD_HOURS": "0",
            "RETRY_JOB_GRACE_SECONDS": "5",
            "RETRY_JOB_MAX_ATTEMPTS_MAIL_THREADS": "7",
            "RETRY_JOB_LIMIT": "50",
            "RETRY_JOB_RATE_PER_SECOND": "0.5",
            "RETRY_JOB_PRIORITY": "oldest",
            "RETRY_JOB_CAP_AFTER_DOWNTIME": "0",
            "RETRY_JOB_CLAIM_SECONDS": "30",
            "RETRY_JOB_LEADER": "FALSE",
            "METRICS_BACKEND": "prometheus_pushgateway",
            "PUSHGATEWAY_URL": "http://me:secret@pushgateway:9091",
        }
    )
    assert settings.gateway == GatewayUrl("http://pushgateway:9091", "me", "secret")
    assert settings == SweepSettings(
        interval=timedelta(seconds=60),
        base_delay=timedelta(seconds=10),
        max_delay=timedelta(seconds=100),
        stuck_after=timedelta(),
        grace=timedelta(seconds=5),
        max_attempts={"MAIL_THREADS": 7},
        limit=50,
        rate=0.5,
        newest_first=False,
        cap=0,
        claim=timedelta(seconds=30),
        leader=False,
        gateway=settings.gateway,
    )
    assert settings.rule(Lifecycle("mail-threads")).lifecycle.max_attempts == 7


def test_what_a_lifecycle_says_goes_before_the_defaults_and_after_the_settings() -> None:
    said = Lifecycle("chunks", max_attempts=4)
    assert SweepSettings().rule(said).lifecycle.max_attempts == 4
    settings = SweepSettings.from_mapping({"RETRY_JOB_MAX_ATTEMPTS_CHUNKS": "9"})
    assert settings.rule(said).lifecycle.max_attempts == 9
    flagged = Lifecycle("chunks", flag="embedding_generated")
    assert SweepSettings().rule(flagged).lifecycle.max_attempts == 5
    # Also where it says what is usual elsewhere.
    usual = Lifecycle("chunks", max_attempts=3)
    assert SweepSettings().rule(usual).lifecycle.max_attempts == 3


REFUSED = {
    ("RETRY_JOB_INTERVAL_SECONDS", "0"): "use a number of seconds from 1",
    ("RETRY_JOB_INTERVAL_SECONDS", "soon"): "use a number of seconds",
    ("RETRY_JOB_STUCK_THRESHOLD_HOURS", "-1"): "use a number of hours from 0",
    ("RETRY_JOB_MAX_ATTEMPTS_CHUNKS", "0"): "use a whole number from 1",
    ("RETRY_JOB_MAX_ATTEMPTS_ANY", "many"): "use a whole number from 1",
    ("RETRY_JOB_LIMIT", "0"): "use a whole number from 1",
    ("RETRY_JOB_RATE_PER_SECOND", "nan"): "use a number from 0",
    ("RETRY_JOB_PRIORITY", "random"): "use newest or oldest",
    ("RETRY_JOB_LEADER", "maybe"): "use true or false",
    ("METRICS_BACKEND", "statsd"): "use noop or prometheus or prometheus_pushgateway",
}


@pytest.mark.parametrize(("setting", "cure"), REFUSED.items())
def test_a_value_that_cannot_be_used_is_refused_with_its_name_and_the_cure(
    setting: tuple[str, str], cure: str
) -> None:
    name, value = setting
    with pytest.raises(ConfigurationError) as refused:
        SweepSettings.from_mapping({name: value})
    assert str(refused.value).startswith(f"{name}={value!r} is not accepted: {cure}")


MISSPELT = {
    "RETRY_JOB_INTERVAL_SECOND": "did you mean RETRY_JOB_INTERVAL_SECONDS?",
    "RETRY_JOB_STUCK_HOURS": "did you mean RETRY_JOB_STUCK_THRESHOLD_HOURS?",
    "RETRY_JOB_MAX_ATTEMPTS": "did you mean RETRY_JOB_MAX_ATTEMPTS_<COLLECTION>?",
    "RETRY_JOB_MAX_ATTEMPTS_": "did you mean RETRY_JOB_MAX_ATTEMPTS_<COLLECTION>?",
    "RETRY_JOB_X": "after RETRY_JOB_ comes INTERVAL_SECONDS, ",
}


@pytest.mark.parametrize(("name", "cure"), MISSPELT.items())
def test_a_name_that_is_misspelt_is_refused(name: str, cure: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        SweepSettings.from_mapping({name: "1"})
    assert str(refused.value).startswith(f"{name} is not a setting: {cure}")


def test_a_limit_for_a_collection_that_is_nearly_one_is_refused() -> None:
    settings = SweepSettings.from_mapping(
        {"RETRY_JOB_MAX_ATTEMPTS_ARCHIVE": "3", "RETRY_JOB_MAX_ATTEMPTS_ORDERS": "3"}
    )
    with pytest.raises(ConfigurationError, match=r"did you mean RETRY_JOB_MAX_ATTEMPTS_ARCHIVES"):
        settings.refuse_misspelt(["messages"])
    SweepSettings(max_attempts={"ORDERS": 3, "THREADS": 5}).refuse_misspelt(["messages"])


def test_pushing_needs_an_address() -> None:
    with pytest.raises(ConfigurationError, match="needs PUSHGATEWAY_URL"):
        SweepSettings.from_mapping({"METRICS_BACKEND": "prometheus_pushgateway"})
    with pytest.raises(ConfigurationError, match=r"^PUSHGATEWAY_URL='\*\*\*' is not accepted"):
        SweepSettings.from_mapping(
            {"METRICS_BACKEND": "prometheus_pushgateway", "PUSHGATEWAY_URL": "gateway"}
        )
    assert SweepSettings.from_mapping({"PUSHGATEWAY_URL": "http://gateway"}).gateway is None


@pytest.mark.parametrize(
    "wrong", [{"interval": timedelta()}, {"claim": timedelta()}, {"limit": -1}, {"rate": -0.5}]
)
def test_values_given_in_code_are_checked_too(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=f"^{next(iter(wrong))}="):
        SweepSettings(**wrong)  # type: ignore[arg-type]


def test_settings_of_events_and_of_sweeps_live_in_one_environment() -> None:
    both = {f"RETRY_JOB_{setting.name}": "" for setting in SWEEP_SETTINGS} | DOCUMENTED
    assert RetryConfig.from_mapping({**both, "RETRY_MAX_ATTEMPTS": "4"}).max_attempts == 4


def test_what_is_in_force_can_be_read_again() -> None:
    settings = SweepSettings.from_mapping(
        {
            "RETRY_JOB_PRIORITY": "oldest",
            "RETRY_JOB_RATE_PER_SECOND": "2.5",
            "RETRY_JOB_MAX_ATTEMPTS_ORDERS": "4",
            "RETRY_JOB_STUCK_THRESHOLD_HOURS": "0.5",
        }
    )
    shown = settings.in_force()
    assert shown.items() >= DOCUMENTED.items() - {("RETRY_JOB_STUCK_THRESHOLD_HOURS", "24")}
    assert shown["RETRY_JOB_STUCK_THRESHOLD_HOURS"] == "0.5"
    assert (shown["RETRY_JOB_LEADER"], shown["RETRY_JOB_PRIORITY"]) == ("true", "oldest")
    again = SweepSettings.from_mapping(shown)
    assert again.in_force() == shown
    login = {
        "METRICS_BACKEND": "prometheus_pushgateway",
        "PUSHGATEWAY_URL": "http://me:s3cret@gateway:9091",
    }
    assert "s3cret" not in str(SweepSettings.from_mapping(login).in_force())


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        ({"RETRY_JOB_MAX_ATTEMPTS_messages": "9"}, "RETRY_JOB_MAX_ATTEMPTS_MESSAGES"),
        ({"RETRY_JOB_BASE_DELAY_SECONDS": "4000"}, "is above RETRY_JOB_MAX_DELAY_SECONDS"),
    ],
)
def test_what_would_have_no_effect_is_refused(given: dict[str, str], cure: str) -> None:
    with pytest.raises(ConfigurationError, match=cure):
        SweepSettings.from_mapping(given)


def test_the_longest_wait_may_be_below_the_usual_first_one() -> None:
    assert SweepSettings.from_mapping({"RETRY_JOB_MAX_DELAY_SECONDS": "60"}).max_delay.seconds == 60
