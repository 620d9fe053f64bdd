"""Settings, the page of metrics, and a broker that is away."""

import asyncio
import re
import socket
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headway import ConfigurationError
from headway.systems.uptime import metrics
from headway.systems.uptime.exposition import StoreCollector
from headway.systems.uptime.metrics import CATALOGUE, Tally
from headway.systems.uptime.monitors import RegionMode
from headway.systems.uptime.scheduling import celery_app, scheduler_of
from headway.systems.uptime.settings import UptimeSettings
from headway.testing.servers.loopback import HOST


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STORE", "redis://h/0"),
        ("SEQUENCES", "amqp://h"),
        ("SEQUENCE", "5"),
        ("BACKLOG_RETRY_PERCENTAGE", "nan"),
        ("BREAKER", "9" * 5000),
        ("TIME_SCALE", "0"),
        ("PATIENCE_SECONDS", "-1"),
        ("BUS", "garbage"),
        ("CELERY_BROKER", "http://u:s3cret@h"),
        ("KAFKA_SERVERS", "host:port"),
        ("KAFKA_TOPIC", "a b/c"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"UPTIME_{name}") as refusal:
        UptimeSettings.from_mapping({f"UPTIME_{name}": value})
    assert "s3cret" not in str(refusal.value)


def test_settings_can_be_given_to_other_processes_and_shown_without_passwords() -> None:
    settings = UptimeSettings.from_mapping(
        {
            "UPTIME_SEQUENCES": "redis://u:s3cret@h:6379/0",
            "UPTIME_CELERY_BROKER": "amqp://u:s3cret@h/",
            "UPTIME_BACKLOG_RETRY_ORGANIZATIONS": "acme, globex",
            "UPTIME_REGIONS": "eu",
            "UPTIME_SHADOW_REGIONS": "us",
            "UPTIME_PATIENCE_SECONDS": "0.1",
            "UPTIME_KAFKA_SERVERS": "a:9092, [::1]:9092,b",
        },
        percentage=100 / 3,
    )
    assert UptimeSettings.from_mapping(settings.in_words()) == settings
    assert settings.in_force()["UPTIME_SEQUENCES"] == "redis://u:***@h:6379/0"
    assert "s3cret" not in str(settings.in_force()) + repr(settings)
    assert settings.region_modes() == {"eu": RegionMode.ACTIVE, "us": RegionMode.SHADOW}


def test_the_page_of_metrics_has_every_metric_of_the_catalogue() -> None:
    tally = Tally()
    tally.add(metrics.DROPPED, 2, {"reason": 'q"}%2C, of any name'})
    for missing in (1, 2, 2, 5000):
        tally.observe(metrics.MISSING, missing)
    counts, registry = tally.taken(), CollectorRegistry()
    registry.register(StoreCollector(lambda: counts))
    page = generate_latest(registry).decode()
    for metric in CATALOGUE:
        kind = re.search(rf"^# TYPE {metric.name} (\w+)$", page, re.MULTILINE)
        assert kind, metric.name
        assert kind[1] == metric.kind
    assert '\nuptime_results_dropped_total{reason="q\\"}%2C, of any name"} 2.0\n' in page
    buckets = dict(re.findall(r'num_missing_check_bucket\{le="([^"]+)"\} ([\d.]+)', page))
    assert (buckets["1.0"], buckets["1000.0"], buckets["+Inf"]) == ("1.0", "3.0", "4.0")


async def test_a_broker_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as hung:  # it never answers
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
