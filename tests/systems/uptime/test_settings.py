"""Settings, the page of metrics, and a broker that is away."""

import asyncio
import re
import socket
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headway import ConfigurationError
from headway.order import Disposition
from headway.systems.uptime import metrics
from headway.systems.uptime.exposition import StoreCollector
from headway.systems.uptime.metrics import CATALOGUE, Tally
from headway.systems.uptime.monitors import RegionMode
from headway.systems.uptime.reading import read_subscriptions
from headway.systems.uptime.scheduling import celery_app, scheduler_of
from headway.systems.uptime.settings import UptimeSettings
from headway.testing.servers.loopback import HOST, free_port
from tests.systems.uptime.sites import FOUR, Site, check


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("UPTIME_STORE", "redis://h/0", "effects are kept in a file; use sqlite:///FILE"),
        ("UPTIME_SEQUENCES", "amqp://h", "Invalid UPTIME_SEQUENCES 'amqp://h'"),
        ("UPTIME_BACKLOG_RETRY_PERCENTAGE", "101", "use a number from 0 to 100"),
        ("UPTIME_BREAKER", "0", "use a whole number from 1"),
        ("UPTIME_SEQUENCE", "5", "did you mean UPTIME_SEQUENCES?"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name(
    name: str, value: str, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)):
        UptimeSettings.from_mapping({name: value})


def test_settings_can_be_given_to_other_processes_and_shown_without_passwords() -> None:
    settings = UptimeSettings.from_mapping(
        {
            "UPTIME_SEQUENCES": "redis://u:s3cret@h:6379/0",
            "UPTIME_CELERY_BROKER": "amqp://u:s3cret@h/",
            "UPTIME_BACKLOG_RETRY_ORGANIZATIONS": "acme, globex",
            "UPTIME_REGIONS": "eu",
            "UPTIME_SHADOW_REGIONS": "us",
            "UPTIME_PATIENCE_SECONDS": "0",
        },
        percentage=12.5,
    )
    assert UptimeSettings.from_mapping(settings.in_words()) == settings
    assert settings.in_force()["UPTIME_SEQUENCES"] == "redis://u:***@h:6379/0"
    assert "s3cret" not in str(settings.in_force()) + repr(settings)
    assert settings.region_modes() == {"eu": RegionMode.ACTIVE, "us": RegionMode.SHADOW}
    assert settings.features().backlog_retry.includes("globex")
    assert settings.patience == timedelta()


def test_waits_are_scaled_and_leases_stay_long_enough_for_machines() -> None:
    order = UptimeSettings(time_scale=0.01).order()
    assert order.give_up_after == timedelta(seconds=1.8)
    assert order.lease == timedelta(seconds=5)


def test_a_line_that_is_no_subscription_is_refused_with_its_number() -> None:
    lines = [b'{"subscription": {"subscription_id": "a"}}', b"\n", b'{"id": "b"}']
    with pytest.raises(ConfigurationError, match=r"line 3 is no subscription \(.*subscription"):
        list(read_subscriptions(lines))


def test_the_page_of_metrics_has_every_metric_of_the_catalogue() -> None:
    tally = Tally()
    tally.add(metrics.ADDED, 3)
    tally.add(metrics.DROPPED, 2, {"reason": "malformed"})
    for missing in (1, 2, 2, 5000):
        tally.observe(metrics.MISSING, missing)
    counts, registry = tally.taken(), CollectorRegistry()
    registry.register(StoreCollector(lambda: counts))
    page = generate_latest(registry).decode()
    for metric in CATALOGUE:
        kind = re.search(rf"^# TYPE {metric.name} (\w+)$", page, re.MULTILINE)
        assert kind, metric.name
        assert kind[1] == metric.kind
    assert "\nuptime_backlog_added_total 3.0\n" in page
    assert '\nuptime_results_dropped_total{reason="malformed"} 2.0\n' in page
    buckets = dict(re.findall(r'num_missing_check_bucket\{le="([^"]+)"\} ([\d.]+)', page))
    assert (buckets["1.0"], buckets["2.0"], buckets["1000.0"]) == ("1.0", "3.0", "3.0")
    assert buckets["+Inf"] == "4.0"
    assert "num_missing_check_sum 5005.0" in page


async def test_a_broker_that_is_away_keeps_no_result_from_being_held(
    memory: Site, tmp_path: Path
) -> None:
    settings = UptimeSettings(
        store=f"sqlite:///{tmp_path}/u.db", celery_broker=f"redis://{HOST}:{free_port()}/0"
    )
    scheduler = scheduler_of(settings)
    memory.scheduler = scheduler  # type: ignore[assignment]
    consumer = memory.consumer()
    assert await consumer.handle_result(check(FOUR)) is Disposition.APPLIED
    assert await consumer.handle_result(check(FOUR + 2)) is Disposition.HELD
    assert memory.counted(metrics.SCHEDULE_FAILED) == 0  # nobody waited for it
    await consumer.backlog.scheduled()
    assert memory.counted(metrics.SCHEDULE_FAILED) == 1
    with pytest.raises(Exception, match="refused"):  # not asked again: that would take seconds
        async with asyncio.timeout(0.5):
            await scheduler.schedule("s1", timedelta(seconds=1))
    celery_app(settings).close()


async def test_a_broker_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as hung:  # nobody ever answers there
        settings = UptimeSettings(
            store=f"sqlite:///{tmp_path}/u.db",
            celery_broker=f"redis://{HOST}:{hung.getsockname()[1]}/0",
        )
        scheduler = scheduler_of(settings)
        looks = [scheduler.schedule(f"s{number}", timedelta(seconds=1)) for number in range(20)]
        async with asyncio.timeout(4.5):
            ends = await asyncio.gather(*looks, return_exceptions=True)
        assert all(isinstance(end, Exception) for end in ends)
    celery_app(settings).close()


def test_celery_without_a_broker_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="UPTIME_CELERY_BROKER is not set: use redis://"):
        celery_app(UptimeSettings())
