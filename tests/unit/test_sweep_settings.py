"""Settings of sweeps: the documented defaults, every name, and what is refused."""

from datetime import timedelta

import pytest

from headway import ConfigurationError, Lifecycle, RetryConfig
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
GIVEN = {
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
    "PUSHGATEWAY_URL": "http://me:s3cret@pushgateway:9091",
}


def read(**given: str) -> SweepSettings:
    return SweepSettings.from_mapping(given)


def test_the_defaults_are_the_documented_ones() -> None:
    given, default = read(**DOCUMENTED), read()
    for collection in ("archives", "messages", "chunks", "threads"):
        assert given.rule(Lifecycle(collection)) == default.rule(Lifecycle(collection))
    assert given.interval == default.interval == timedelta(minutes=15)
    assert (default.limit, default.cap, default.rate) == (10_000, 1_000, 0)
    assert (default.claim, default.grace) == (timedelta(minutes=1), timedelta(minutes=15))
    assert (default.leader, default.newest_first) == (True, True)


def test_every_setting_is_read() -> None:
    settings = read(**GIVEN)
    assert settings.gateway is not None
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
    assert read(PUSHGATEWAY_URL="http://gateway").gateway is None
    assert read(RETRY_JOB_MAX_DELAY_SECONDS="60").max_delay.seconds == 60  # below the usual base


def test_a_lifecycle_goes_before_the_defaults_and_settings_go_before_a_lifecycle() -> None:
    set_by_person = read(RETRY_JOB_MAX_ATTEMPTS_CHUNKS="9")
    for settings, most, expected in (
        (SweepSettings(), None, 5),
        (SweepSettings(), 4, 4),
        (SweepSettings(), 3, 3),  # what is usual elsewhere
        (set_by_person, 4, 9),
    ):
        lifecycle = Lifecycle("chunks", max_attempts=most, flag="embedding_generated")
        assert settings.rule(lifecycle).lifecycle.max_attempts == expected


@pytest.mark.parametrize(
    ("name", "value", "cure"),
    [
        ("RETRY_JOB_INTERVAL_SECONDS", "0", "seconds from 1"),
        ("RETRY_JOB_INTERVAL_SECONDS", "soon", "seconds"),
        ("RETRY_JOB_STUCK_THRESHOLD_HOURS", "-1", "hours from 0"),
        ("RETRY_JOB_MAX_ATTEMPTS_CHUNKS", "0", "whole number from 1"),
        ("RETRY_JOB_MAX_ATTEMPTS_ANY", "many", "whole number from 1"),
        ("RETRY_JOB_LIMIT", "0", "whole number from 1"),
        ("RETRY_JOB_RATE_PER_SECOND", "nan", "number from 0"),
        ("RETRY_JOB_PRIORITY", "random", "newest or oldest"),
        ("RETRY_JOB_LEADER", "maybe", "true or false"),
        ("METRICS_BACKEND", "statsd", "noop or prometheus or prometheus_pushgateway"),
        ("METRICS_BACKEND", "prometheus_pushgateway", "PUSHGATEWAY_URL"),
        ("RETRY_JOB_BASE_DELAY_SECONDS", "4000", "RETRY_JOB_MAX_DELAY_SECONDS"),
        ("RETRY_JOB_MAX_ATTEMPTS_messages", "9", "RETRY_JOB_MAX_ATTEMPTS_MESSAGES"),
        ("RETRY_JOB_INTERVAL_SECOND", "1", "RETRY_JOB_INTERVAL_SECONDS?"),
        ("RETRY_JOB_STUCK_HOURS", "1", "RETRY_JOB_STUCK_THRESHOLD_HOURS?"),
        ("RETRY_JOB_MAX_ATTEMPTS", "1", "RETRY_JOB_MAX_ATTEMPTS_<COLLECTION>?"),
        ("RETRY_JOB_MAX_ATTEMPTS_", "1", "RETRY_JOB_MAX_ATTEMPTS_<COLLECTION>?"),
        ("RETRY_JOB_X", "1", "INTERVAL_SECONDS, "),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_name_and_the_cure(
    name: str, value: str, cure: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(**{name: value})
    assert str(refused.value).startswith(name)
    assert cure in str(refused.value)


@pytest.mark.parametrize(
    "wrong", [{"interval": timedelta()}, {"claim": timedelta()}, {"limit": -1}, {"rate": -0.5}]
)
def test_values_given_in_code_are_checked_too(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=f"^{next(iter(wrong))}="):
        SweepSettings(**wrong)  # type: ignore[arg-type]


def test_a_limit_for_a_collection_that_is_nearly_one_is_refused() -> None:
    settings = read(RETRY_JOB_MAX_ATTEMPTS_ARCHIVE="3", RETRY_JOB_MAX_ATTEMPTS_ORDERS="3")
    with pytest.raises(ConfigurationError, match=r"RETRY_JOB_MAX_ATTEMPTS_ARCHIVES"):
        settings.refuse_misspelt(["messages"])
    SweepSettings(max_attempts={"ORDERS": 3, "THREADS": 5}).refuse_misspelt(["messages"])


def test_what_is_in_force_can_be_read_again_and_events_have_settings_of_their_own() -> None:
    given = {
        "RETRY_JOB_PRIORITY": "oldest",
        "RETRY_JOB_RATE_PER_SECOND": "2.5",
        "RETRY_JOB_MAX_ATTEMPTS_ORDERS": "4",
        "RETRY_JOB_STUCK_THRESHOLD_HOURS": "0.5",
    }
    shown = read(**given).in_force()
    assert shown.items() >= (DOCUMENTED | given).items()
    assert shown["RETRY_JOB_LEADER"] == "true"
    assert read(**shown).in_force() == shown
    assert "s3cret" not in str(read(**GIVEN).in_force())
    assert RetryConfig.from_mapping({**shown, "RETRY_MAX_ATTEMPTS": "4"}).max_attempts == 4
