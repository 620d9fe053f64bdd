"""`headway uptime` as a person meets it: what it refuses, and what it says of a run."""

import json
import os
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headway import ConfigurationError
from headway.systems.uptime.meeting import meet_sequences
from headway.systems.uptime.settings import UptimeSettings
from headway.testing.servers.loopback import HOST, free_port
from tests.commands import app
from tests.systems.uptime.sites import MINUTE, check

WATCHED = {
    "subscription": {"subscription_id": "s1", "interval_since_ms": MINUTE},
    "detector": {"detector_id": "d1", "organization": "acme"},
}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def uptime(*words: str, feed: str | None = None) -> Result:
    return CliRunner().invoke(app, ["uptime", *words], input=feed)


def subscribed() -> None:
    assert uptime("subscribe", "-", feed=json.dumps(WATCHED)).exit_code == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["feed", "nofile"], "nofile"),
        (["subscribe", "nofile"], "nofile"),
        (["run", "--from", "nofile"], "nofile"),
        (["status", "--store", "sqlite:///typo.db"], "typo.db"),
        (["checks", "s1", "--store", "sqlite:///typo.db"], "typo.db"),
        (["rejected", "--store", "sqlite:///typo.db"], "typo.db"),
    ],
)
def test_a_file_that_is_not_there_is_refused_by_its_name_and_not_made(
    words: list[str], named: str
) -> None:
    refused = uptime(*words).exception
    assert isinstance(refused, ConfigurationError)
    assert named in str(refused)
    assert list(Path.cwd().iterdir()) == []


def test_a_subscription_that_is_not_known_is_told_from_one_without_results() -> None:
    subscribed()
    assert uptime("checks", "s1").exit_code == 0
    unknown = uptime("checks", "nosuch")
    assert unknown.exit_code == 1
    assert "nosuch" in unknown.stderr


@pytest.mark.parametrize(
    "fields",
    [
        {"interval_seconds": 0},
        {"interval_seconds": 10**30},
        {"subscription_id": ""},
        {"regions": {"eu": "half"}},
    ],
    ids=str,
)
def test_a_subscription_that_cannot_be_followed_is_refused_by_its_line(
    fields: dict[str, object],
) -> None:
    wrong = {"subscription": {"subscription_id": "s", **fields}}
    feed = f"{json.dumps(WATCHED)}\n\n{json.dumps(wrong)}"
    refused = uptime("subscribe", "-", feed=feed).exception
    assert isinstance(refused, ConfigurationError)
    assert str(refused).startswith("line 3")


@pytest.mark.server("redis")
def test_an_engine_that_does_not_serve_us_is_refused(redis_database: str) -> None:
    address, _, _ = redis_database.rpartition("/")
    subscribed()
    refused = uptime("run", "--from", "-", "--sequences", f"{address}/99999", feed="").exception
    assert isinstance(refused, ConfigurationError)


def test_a_run_that_keeps_no_order_says_so_and_names_strangers() -> None:
    subscribed()
    Path("results.jsonl").write_bytes(check(1) + b"\n" + check(1).replace(b'"s1"', b'"nosuch"'))
    command = ["uptime", "run", "--from", "results.jsonl", "--workers", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "headway.apps.cli", *command],
        env={**os.environ, "UPTIME_TIME_SCALE": "0.005"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "--percentage 100" in done.stderr
    assert "nosuch" in done.stderr
    assert done.stdout == "Took 2 results: 1 applied, 1 subscription not found.\n"


async def test_an_engine_that_is_away_is_named_without_its_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server((HOST, 0)) as mute:  # it takes calls, and never answers
        for port in (free_port(), mute.getsockname()[1]):
            caplog.clear()
            settings = UptimeSettings(sequences=f"redis://:s3cret@{HOST}:{port}/0")
            await meet_sequences(settings, timedelta(seconds=0.5))
            assert "--sequences" in caplog.text
            assert "s3cret" not in caplog.text
