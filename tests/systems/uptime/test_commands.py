"""`headway uptime` as a person meets it: files that are not there, words, and what it says."""

import json
import logging
import os
import re
import socket
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from arroyo.errors import OffsetOutOfRange
from typer.testing import CliRunner, Result

from headway import ConfigurationError
from headway.apps.cli import uptime_running
from headway.apps.cli.demo_uptime import _NEXT
from headway.apps.cli.uptime_waiting import until_none_is_held
from headway.facts import GapGivenUp, SequencesAway
from headway.logs import SequenceLog
from headway.order import Why
from headway.systems.uptime.arroyo.client_log import ClientLog
from headway.systems.uptime.arroyo.offsets import LostOffset
from headway.systems.uptime.meeting import meet_sequences
from headway.systems.uptime.metrics import DROPPED
from headway.systems.uptime.opening import open_store
from headway.systems.uptime.reading import read_subscriptions
from headway.systems.uptime.results import decode
from headway.systems.uptime.saying import UptimeLog
from headway.systems.uptime.settings import UptimeSettings
from headway.systems.uptime.sqlite_store import SqliteStore
from headway.systems.uptime.validation import Drop
from headway.testing.clock import VirtualClock
from headway.testing.servers.loopback import free_port
from tests.commands import app
from tests.systems.uptime.sites import FOUR, MINUTE, Site, check

WATCHED = {
    "subscription": {"subscription_id": "s1", "interval_since_ms": MINUTE},
    "detector": {"detector_id": "d1", "organization": "acme"},
}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headway.apps.cli.uptime.write_logs", lambda _format: None)


def uptime(*words: str, feed: str | None = None) -> Result:
    return CliRunner().invoke(app, ["uptime", *words], input=feed)


def subscribed() -> None:
    assert uptime("subscribe", "-", feed=json.dumps(WATCHED)).stdout == "Saved 1 subscription.\n"


@pytest.mark.parametrize("words", [["feed"], ["subscribe"], ["run", "--from"]])
def test_a_file_that_is_not_there_is_refused_by_its_name(words: list[str]) -> None:
    refused = uptime(*words, "nofile").exception
    assert isinstance(refused, ConfigurationError)
    assert str(refused).startswith("nofile cannot be read (No such file or directory; this is ")
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize("words", [["status"], ["checks", "s1"], ["rejected"]])
def test_a_look_makes_no_store(words: list[str]) -> None:
    refused = uptime(*words, "--store", "sqlite:///typo.db").exception
    assert isinstance(refused, ConfigurationError)
    assert "'sqlite:///typo.db' is not accepted: there is no such file" in str(refused)
    assert list(Path.cwd().iterdir()) == []


def test_the_status_makes_no_sequences_either() -> None:
    subscribed()
    refused = uptime("status", "--sequences", "sqlite:///typo.db").exception
    assert isinstance(refused, ConfigurationError)
    assert not Path("typo.db").exists()


def test_a_subscription_that_is_not_known_is_told_from_one_without_results() -> None:
    subscribed()
    assert uptime("checks", "s1").exit_code == 0
    unknown = uptime("checks", "nosuch")
    assert unknown.exit_code == 1
    assert "there is no subscription 'nosuch' in sqlite:///headway-uptime.db" in unknown.stderr


async def test_the_status_fits_into_80_columns_and_says_what_is_counted() -> None:
    store = open_store(UptimeSettings())
    await store.prepare()
    longest = f"{DROPPED.name}{{reason={Drop.SUBSCRIPTION_NOT_FOUND.value}}}"
    counted = {longest: 12, "uptime_backlog_added_total": 4, "uptime_backlog_timeout_total": 1}
    await store.count(counted)
    await store.close()
    told = subprocess.run(  # noqa: ASYNC221 (nothing else runs here)
        [sys.executable, "-m", "headway.apps.cli", "uptime", "status"],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert longest in told
    assert [line.split()[-1] for line in told.splitlines() if "per held result" in line] == [
        "25.0%",
        "0.0%",
    ]
    assert "results held now: added less removed" in told
    assert "by the settings of this command" in told


def run_from(*lines: bytes, options: tuple[str, ...] = ()) -> tuple[str, str]:
    subscribed()
    Path("results.jsonl").write_bytes(b"\n".join(lines))
    command = ["uptime", "run", "--from", "results.jsonl", "--workers", "1", *options]
    done = subprocess.run(
        [sys.executable, "-m", "headway.apps.cli", *command],
        env={**os.environ, "UPTIME_TIME_SCALE": "0.005"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout, done.stderr


def test_a_run_that_keeps_no_order_says_so_and_names_strangers() -> None:
    stranger = check(1).replace(b'"s1"', b'"nosuch"')
    out, log = run_from(check(1), stranger)
    assert "The order is kept for nobody" in log
    assert "--percentage 100" in log
    assert "subscriptions that are not known (nosuch)" in log
    assert out == "Took 2 results: 1 applied, 1 subscription not found.\n"


def test_a_run_says_what_it_waits_for_and_counts_in_the_end() -> None:
    out, log = run_from(check(1), check(3), options=("--percentage", "100"))
    assert "The order is kept for nobody" not in log
    assert "Waiting for what is missing: 1 subscription with held results; s1 holds 1 result" in log
    assert out == "Took 2 results: 2 applied (1 of them after a wait).\n"


async def test_strangers_are_named_once_in_a_minute(
    memory: Site, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = memory.consumer()

    async def come(*names: str) -> list[str]:
        caplog.clear()
        raws = [check(FOUR).replace(b'"s1"', f'"{name}"'.encode()) for name in names]
        assert set(await consumer.handle_results(raws)) == {Drop.SUBSCRIPTION_NOT_FOUND}
        return [record.getMessage() for record in caplog.records]

    (line,) = await come("x1", "x1", "x2", "x3", "x4", "x5", "x6")
    assert "not known (x1, x2, x3, x4, x5 and 1 more)" in line
    assert await come("y") == []
    memory.clock.advance(timedelta(minutes=1))
    (line,) = await come("z")
    assert "(z)" in line


async def test_a_file_without_the_time_of_what_was_rejected_is_renewed(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "old.db") as old:
        old.execute(
            "create table uptime_rejected (id integer primary key, raw blob not null, "
            "reason text not null)"
        )
        old.execute("insert into uptime_rejected (raw, reason) values ('a', 'before')")
    old.close()
    store = SqliteStore(tmp_path / "old.db")
    await store.prepare()
    now = datetime(2026, 1, 5, 4, tzinfo=UTC)
    await store.reject(b"b", "after", now)
    assert [(each.reason, each.at) for each in await store.rejected(9)] == [
        ("after", now),
        ("before", None),
    ]
    await store.close()


async def test_engines_that_are_away_do_not_keep_a_run_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = UptimeSettings(sequences=f"redis://127.0.0.1:{free_port()}/0")
    assert not await until_none_is_held(settings, timedelta())
    assert "Whether results are held is not known" in caplog.text


async def test_an_engine_that_is_away_is_said_before_any_worker_begins(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # it takes calls, and never answers
        for port, within, why in (
            (free_port(), 10, "Connect call failed"),
            (mute.getsockname()[1], 0.5, "no answer within 0.5 s"),
        ):
            caplog.clear()
            url = f"redis://:secret@127.0.0.1:{port}/0"
            await meet_sequences(UptimeSettings(sequences=url), timedelta(seconds=within))
            (line,) = (record.getMessage() for record in caplog.records)
            assert "cannot be reached" in line
            assert why in line
            assert "results wait 10 s for it" in line
            assert "look whether it runs, and at --sequences" in line
            assert "secret" not in line


@pytest.mark.server("redis")
async def test_an_engine_that_does_not_serve_us_is_refused(redis_database: str) -> None:
    await meet_sequences(UptimeSettings(sequences=redis_database))
    address, _, _ = redis_database.rpartition("/")
    with pytest.raises(ConfigurationError, match="does not serve this"):
        await meet_sequences(UptimeSettings(sequences=f"{address}/99999"))


@pytest.mark.parametrize(
    "words", [["run", "--from", "-"], ["run"], ["run", "--workers", "1"], ["run", "--kafka", "k:1"]]
)
def test_every_way_to_run_meets_the_engine_first(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_settings: UptimeSettings) -> None:
        raise ConfigurationError("met")

    monkeypatch.setattr(uptime_running, "meet_sequences", refuse)
    assert str(uptime(*words, feed="").exception) == "met"


def test_an_engine_that_is_away_is_said_with_what_it_means_for_results(
    caplog: pytest.LogCaptureFixture,
) -> None:
    UptimeLog().tell(SequencesAway(ConnectionError("no"), timedelta(seconds=10)))
    away, means = (record.getMessage() for record in caplog.records)
    assert away.startswith("The engine of sequences is away for more than 10s")
    assert means.startswith("Results are processed without their order until it is back")


@pytest.mark.parametrize(("held", "words"), [(1, "1 was held"), (2, "2 were held")])
def test_one_result_is_one(held: int, words: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gap = GapGivenUp("home", why=Why.TIMEOUT, held=held)
    SequenceLog().tell(gap)
    assert words in caplog.text


def test_feeding_one_result_is_said_in_the_singular() -> None:
    assert uptime("feed", "-", feed=check(1).decode()).stdout == "Fed 1 result.\n"


def test_a_consumer_that_was_told_to_stop_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def told(_settings: UptimeSettings) -> None:
        """Return, as after SIGTERM."""

    caplog.set_level(logging.INFO)
    monkeypatch.setattr("headway.systems.uptime.service.run_on_bus", told)
    uptime_running.from_bus(UptimeSettings(), workers=1)
    assert "Stopped, as told (process " in caplog.text


def test_a_kafka_that_nobody_reaches_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = pytest.importorskip("headway.systems.uptime.kafka")
    monkeypatch.setattr(kafka, "_ANSWERS_WITHIN", 0.3)
    servers = f"127.0.0.1:{free_port()}"
    log = ClientLog(servers, VirtualClock(), option="--kafka")
    kafka._say_whether_it_answers(UptimeSettings(kafka_servers=servers), log)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"Kafka at {servers} cannot be reached (")
    assert "it is tried until it answers" in line


def test_offsets_that_kafka_has_no_more_end_the_run_with_the_cure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = pytest.importorskip("headway.systems.uptime.kafka")
    asked: list[dict[str, object]] = []

    class Reading:
        def __init__(self, *given: object, **named: object) -> None:
            asked.append(named)

        def run(self) -> None:
            raise OffsetOutOfRange("gone")

        def close(self) -> None: ...

        shutdown = signal_shutdown = close

    lost = [LostOffset(3, 1000, 2000, 2500)]
    monkeypatch.setattr(kafka, "lost_offsets", lambda *_given: lost)
    monkeypatch.setattr(kafka.signal, "signal", lambda *_given: None)
    for name in ("UptimeStrategy", "kafka_consumer", "stream"):
        monkeypatch.setattr(kafka, name, Reading)
    settings = UptimeSettings(kafka_servers=f"127.0.0.1:{free_port()}", kafka_group="g")
    with pytest.raises(kafka.OffsetsLostError) as raised:
        kafka.run_kafka(settings, processes=1, batch=1)
    said = str(raised.value)
    assert "has no more what group g reads next of uptime-results (partition 3: 1000," in said
    assert "set UPTIME_KAFKA_LOST=oldest" in said
    with pytest.raises(kafka.OffsetsLostError):
        kafka.run_kafka(replace(settings, kafka_lost="oldest"), processes=1, batch=1)
    assert [each["stops_if_lost"] for each in asked if "stops_if_lost" in each] == [True, False]


def test_what_kafkas_client_mutters_is_said_once_in_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    logger = ClientLog("k:9092", clock, option="--kafka").logger
    text = "[thrd:k:9092/bootstrap]: k:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: no"

    def mutter() -> None:
        for _ in range(100):
            logger.error("%s [%s] %s", "FAIL", "rdkafka#consumer-1", text)

    mutter()
    clock.advance(timedelta(seconds=59))
    mutter()
    (line,) = (record.getMessage() for record in caplog.records)
    assert line == (
        "Kafka at k:9092 cannot be reached (k:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 "
        "failed: no): it is tried until it answers, or until this is stopped; look whether it "
        "runs, and at --kafka"
    )
    clock.advance(timedelta(seconds=1))
    mutter()
    assert len(caplog.records) == 2
    logger.warning("%s [%s] %s", "MAXPOLL", "rdkafka#consumer-1", "[thrd:main]: too slow")
    assert caplog.records[-1].getMessage() == (
        "Kafka's client says: MAXPOLL [rdkafka#consumer-1] [thrd:main]: too slow"
    )


def test_the_files_of_the_page_can_be_pasted_and_every_run_on_it_keeps_the_order() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "run-uptime.md").read_text()
    subscriptions, results = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert len(list(read_subscriptions(subscriptions.encode().splitlines()))) == 1
    assert [decode(line).guid for line in results.encode().splitlines()] == ["c-1", "c-3", "c-2"]
    runs = re.findall(r"headway uptime run[^`\n]*", page)
    assert len(runs) > 3
    assert all("--percentage" in run for run in runs)


def test_the_demo_names_only_what_works_after_it() -> None:
    root = Path(__file__).parents[3]
    pages = re.findall(r"docs/\S+\.md", _NEXT)
    assert len(pages) == len(_NEXT.splitlines()) - 1
    assert all((root / page).is_file() for page in pages)
