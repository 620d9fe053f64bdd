"""Real processes: workers without Kafka, Celery, Arroyo's pool on a broker of Kafka's protocol."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headway.engines import open_sequences
from headway.systems.uptime.embedded import Embedded
from headway.systems.uptime.kafka_feed import produce
from headway.systems.uptime.opening import FAMILY, open_store
from headway.systems.uptime.settings import UptimeSettings
from headway.testing.servers import wait_until
from headway.testing.servers.loopback import http_request
from tests.systems.uptime.crowds import (
    MINUTE,
    is_exact,
    keys,
    mixed,
    results,
    settings_in,
    subscribe,
)
from tests.systems.uptime.sites import check

pytestmark = pytest.mark.timeout(180)

HEADWAY = [sys.executable, "-m", "headway.apps.cli"]


@pytest.fixture(params=["sqlite", "redis"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> UptimeSettings:
    url = request.getfixturevalue("redis_database") if request.param == "redis" else ""
    return settings_in(tmp_path, sequences=url)


async def until_none_is_held(settings: UptimeSettings) -> None:
    sequences = open_sequences(settings.sequences_url, family=FAMILY, settings=settings.order())
    try:
        async with asyncio.timeout(60):
            while (await sequences.waiting(0))[0]:  # noqa: ASYNC110 (other processes do it)
                await asyncio.sleep(0.05)
    finally:
        await sequences.close()


async def test_many_results_through_several_workers_of_which_one_is_killed(
    settings: UptimeSettings,
) -> None:
    names, missing = keys(20), {("s3", 7), ("s9", 12), ("s9", 13)}
    await subscribe(settings, names)
    raws = results(names, 40, missing=missing)
    with Embedded(
        settings, workers=3, batch=20, pause_of=lambda number: 0.3 * (number % 8 == 5)
    ) as pool:
        feeding = asyncio.create_task(asyncio.to_thread(pool.feed, raws))
        assert await asyncio.to_thread(
            wait_until, lambda: pool.report.results >= 100, timedelta(seconds=60)
        )
        os.kill(pool.pids[0], signal.SIGKILL)
        report = await feeding
        await until_none_is_held(settings)
    assert report.deaths == 1
    assert report.results == len(raws)
    assert await is_exact(settings, names, 40, missing) == []


@pytest.fixture
def kafka() -> Iterator[str]:
    """A cluster of librdkafka's own: Kafka's protocol over TCP, four partitions a topic."""
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(owner.list_topics(timeout=10).brokers.values()))
    yield f"{broker.host}:{broker.port}"
    owner.flush(1)


async def test_results_from_kafka_through_arroyos_pool(
    tmp_path: Path, redis_database: str, kafka: str
) -> None:
    settings = settings_in(tmp_path, sequences=redis_database, kafka_servers=kafka)
    names, missing = keys(40), {("s1", 5)}
    await subscribe(settings, names)
    raws = mixed(results(names, 20, missing=missing), 200)
    fed: list[int] = []
    await asyncio.to_thread(produce, settings, raws, fed.append)
    assert sum(fed) == len(raws)
    with (tmp_path / "log").open("wb") as log:
        command = [*HEADWAY, "uptime", "run", "--workers", "2", "--batch", "20"]
        command += ["--metrics-port", "0", "--log-format", "text"]
        consumer = subprocess.Popen(  # noqa: ASYNC220 (nothing else runs meanwhile)
            command, env={**os.environ, **settings.in_words()}, stdout=log, stderr=log
        )
    store = open_store(settings)
    try:
        async with asyncio.timeout(90):
            while (await store.totals()).results < len(raws):
                await asyncio.sleep(0.2)
                assert consumer.poll() is None, (tmp_path / "log").read_text()
        await until_none_is_held(settings)
    finally:
        consumer.send_signal(signal.SIGTERM)
        await store.close()
    assert await asyncio.to_thread(consumer.wait, 40) == 0, (tmp_path / "log").read_text()
    assert await is_exact(settings, names, 20, missing) == []


def headway(*words: str, folder: Path, feed: str = "") -> str:
    done = subprocess.run(
        [*HEADWAY, *words],
        cwd=folder,
        env={**os.environ, "UPTIME_TIME_SCALE": "0.02", "UPTIME_BACKLOG_RETRY_PERCENTAGE": "100"},
        input=feed,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_from_subscribing_to_the_record_of_checks(tmp_path: Path) -> None:
    watched = {
        "subscription": {"subscription_id": "s1", "interval_since_ms": MINUTE},
        "detector": {"detector_id": "d1", "organization": "acme"},
    }
    said = headway("uptime", "subscribe", "-", folder=tmp_path, feed=json.dumps(watched))
    assert said == "Saved 1 subscription.\n"
    lines = [check(minute).decode() for minute in (1, 3, 2, 5)]
    (tmp_path / "results.jsonl").write_text("\n".join([*lines, "no result", ""]))
    said = headway("uptime", "run", "--from", "results.jsonl", "--workers", "1", folder=tmp_path)
    assert said.startswith("Took 5 results: ")
    status = json.loads(headway("uptime", "status", "--json", folder=tmp_path))
    assert (status["results"], status["misses"], status["rejected"]) == (4, 1, 1)
    assert status["rates"]["size"] == 0
    assert status["counters"]["uptime_backlog_timeout_total"] == 1
    assert "taken back" not in headway("uptime", "checks", "s1", folder=tmp_path)
    shown = json.loads(headway("uptime", "checks", "s1", "--json", folder=tmp_path))
    assert [line["scheduled_check_time_ms"] // MINUTE for line in shown] == [1, 2, 3, 4, 5]
    assert "misses that stand" in headway("uptime", "status", folder=tmp_path)


def test_results_from_the_bus_with_options_that_go_before_the_settings_file_in_every_worker(
    tmp_path: Path,
) -> None:
    settings = settings_in(tmp_path)
    names = keys(5)
    asyncio.run(subscribe(settings, names))
    raws = mixed(results(names, 10, missing=set()), 25)
    words = settings.in_words()
    store = words.pop("UPTIME_STORE")
    file = tmp_path / "settings.env"
    file.write_text(f"UPTIME_STORE=sqlite:///{tmp_path}/other.db\n")
    environment = {**os.environ, **words, "HEADWAY_SETTINGS": str(file)}
    feed = [*HEADWAY, "uptime", "feed", "-", "--store", store]
    subprocess.run(feed, input=b"\n".join(raws), env=environment, check=True, capture_output=True)
    run = [*HEADWAY, "uptime", "run", "--workers", "2", "--metrics-port", "0", "--store", store]
    log_file = tmp_path / "log"
    with log_file.open("wb") as log:
        consumer = subprocess.Popen(run, env=environment, stdout=log, stderr=log)
    try:
        assert wait_until(lambda: "/metrics" in log_file.read_text(), timedelta(seconds=60))
        port = int(log_file.read_text().partition("http://127.0.0.1:")[2].partition("/")[0])
        wanted = 'uptime_results_processed_total{region="default",status="success"} 50.0'

        def page() -> str:
            return http_request("GET", port, "/metrics")[1].decode()

        assert wait_until(lambda: wanted in page(), timedelta(seconds=60)), page()
    finally:
        consumer.terminate()
        consumer.wait(30)
    assert asyncio.run(is_exact(settings, names, 10, set())) == []
    assert not (tmp_path / "other.db").exists()


def test_offsets_that_kafka_has_no_more_end_the_run_with_the_setting_that_goes_on(
    tmp_path: Path, kafka: str
) -> None:
    settings = settings_in(tmp_path, kafka_servers=kafka, kafka_group="readers")
    asyncio.run(subscribe(settings, ["s1"]))
    produce(settings, [check(1)], lambda _number: None)
    reader = Consumer({"bootstrap.servers": kafka, "group.id": "readers"})
    lost = [TopicPartition(settings.kafka_topic, number, 1000) for number in range(4)]
    reader.commit(offsets=lost, asynchronous=False)
    reader.close()
    done = subprocess.run(
        [*HEADWAY, "uptime", "run", "--workers", "1"],
        env={**os.environ, **settings.in_words()},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode != 0
    assert "UPTIME_KAFKA_LOST" in done.stderr
