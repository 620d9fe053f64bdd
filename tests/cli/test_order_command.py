"""`headway order` on a real file and a real Redis, through its front door."""

import json
import os
import pty
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headway import ConfigurationError
from headway.apps.cli.refusals import UnavailableError
from headway.testing.servers.loopback import free_port
from tests.cli.offices import Office
from tests.cli.shops import NASTY
from tests.commands import app

COMMAND = (sys.executable, "-m", "headway.apps.cli", "order")
MINUTE = 60_000
FOUR = 1_763_265_600_000
"""04:00 in milliseconds."""


@pytest.fixture(params=["sqlite", "redis"])
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Office:
    if request.param == "redis":
        return Office(request.getfixturevalue("redis_database"))
    return Office(f"sqlite:///{tmp_path}/headway.db")


def test_status_shows_what_each_key_expects_holds_and_misses(office: Office) -> None:
    office.hold("idle", 1, 2)
    assert "No key of uptime holds anything now." in office("status").stdout
    office.hold("shop-17", 1, 4, 5)
    (line,) = [line for line in office("status").stdout.splitlines() if line.startswith("shop-17")]
    assert line.split()[:5] == ["shop-17", "waiting", "2", "2", "2"]
    assert "in 2 min 5" in line or "in 3 min" in line
    (found,) = office.json("status")
    assert (found["key"], found["mode"], found["expected"]) == ("shop-17", "waiting", 2)
    assert found["missing"] == [{"first": 2, "last": 3, "step": 1, "count": 2}]
    assert (found["held"], found["applied"]) == ([4, 5], 1)
    (idle,) = office.json("status", "idle")
    assert (idle["mode"], idle["held"], idle["applied"]) == ("idle", [], 2)


def test_status_says_how_many_more_there_are(office: Office) -> None:
    for number in range(3):
        office.hold(f"key-{number}", 1, 3)
    assert "and 1 more: a larger --limit" in office("status", "--limit", "2").stdout


def test_explain_says_what_happens_next_and_when(office: Office) -> None:
    office.hold("subscription-a", FOUR, FOUR + 2 * MINUTE, step=MINUTE)
    said = " ".join(office("explain", "subscription-a").stdout.split())
    assert "waiting: results are held behind one that is missing" in said
    assert f"missing 1: {FOUR + MINUTE} (2025-11-16 04:01:00Z)" in said
    assert f"held 1: {FOUR + 2 * MINUTE} (2025-11-16 04:02:00Z)" in said
    assert "When what is missing comes, 1 held result can follow at once." in said
    assert "1 position is made up as missed" in said
    assert "at once if 9 more come (10 held in all)" in said
    (found,) = office.json("explain", "subscription-a", "--contents")
    assert found["next_look"] is not None
    assert found["gives_up"] > found["next_look"] > found["since"]
    assert found["contents"] == [{"position": FOUR + 2 * MINUTE, "payload": '{"status":"success"}'}]


def test_families_know_nothing_of_one_another(office: Office) -> None:
    office.hold("a", 1, 3, family="orders")
    assert office.json("status") == []
    assert [each["key"] for each in office.json("status", "--name", "orders")] == ["a"]


@pytest.mark.parametrize("words", [["explain", "nobody"], ["status", "nobody"]])
def test_an_unknown_key_is_refused(office: Office, words: list[str]) -> None:
    office.hold("a", 1)
    refused = office(*words).exception
    assert isinstance(refused, ConfigurationError)
    assert f"the key 'nobody' is not known under the name 'uptime' in {office.url}" in str(refused)


def test_a_drain_is_shown_first_asks_and_is_recorded(office: Office) -> None:
    office.hold("a", 1, 3, 5)
    dry = office("drain", "a", "--dry-run")
    assert "1 of 1 key would be drained: 2 positions made up as missed, 2 held results" in (
        dry.stdout
    )
    assert "Nothing was changed" in dry.stdout
    asked = office("drain", "a")
    assert asked.exit_code == 2
    assert "nobody is here to be asked: say --yes" in asked.stderr
    assert office.look("a").work is None
    done = office("drain", "a", "--yes")
    assert "1 of 1 key drained" in done.stdout
    record = json.loads(done.stderr.splitlines()[-1])
    assert (record["change"], record["sequences"], record["held"]) == ("drain", "uptime", 2)
    assert record["gaps"] == {"a": [[2, 2, 1], [4, 4, 1]]}
    assert "@" in record["operator"]
    work = office.look("a").work
    assert work is not None
    assert work.gap is not None
    assert (work.position, work.gap.first, work.gap.why) == (3, 2, "operator")


def test_a_drain_of_all_and_of_what_is_not_there(office: Office) -> None:
    office.hold("a", 1, 3)
    office.hold("b", 1, 3)
    office.hold("idle", 1)
    done = office("drain", "idle", "nobody", "--yes")
    assert done.exit_code == 1
    assert "idle holds nothing" in done.stdout
    assert f"nobody is not known under the name 'uptime' in {office.url}" in done.stdout
    assert "2 of 2 keys drained" in office("drain", "--all", "--yes").stdout
    assert "nothing to drain" in office("drain", "--all", "--yes").stdout


@pytest.mark.parametrize("words", [[], ["a", "--all"]])
def test_a_drain_must_be_told_what(office: Office, words: list[str]) -> None:
    refused = office("drain", *words).exception
    assert isinstance(refused, ConfigurationError)
    assert "name keys, or say --all" in str(refused)


def test_hostile_names_say_nothing_to_the_terminal(office: Office) -> None:
    office.hold(NASTY, 1, 3)
    for done in (office("status"), office("explain", NASTY), office("drain", NASTY, "--dry-run")):
        assert done.exit_code == 0, done.output
        assert not {"\x1b", "\x9b", "\u202e"} & set(done.stdout)
    assert not {"\x1b", "\x9b", "\u202e"} & set(office("status", "--json").stdout)


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_a_person_is_asked_and_sees_what_is_meant(tmp_path: Path, answer: bytes, code: int) -> None:
    office = Office(f"sqlite:///{tmp_path}/headway.db")
    office.hold("shop-17", 1, 3)
    outer, inner = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "drain", "shop-17", "--name", "uptime", "--sequences", office.url],
        stdin=inner,
        stdout=inner,
        stderr=inner,
    ) as process:
        os.close(inner)
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(outer, 1000)
        os.write(outer, answer)
        assert process.wait(timeout=60) == code
    os.close(outer)
    assert b"shop-17" in asked
    assert b"Drain 1 key: 1 position made up as missed, 1 held result released?" in asked
    assert (office.look("shop-17").work is not None) == (code == 0)


def test_without_a_file_nothing_is_made(tmp_path: Path) -> None:
    office = Office(f"sqlite:///{tmp_path}/none.db")
    refused = office("status").exception
    assert isinstance(refused, ConfigurationError)
    assert "there is no such file" in str(refused)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", ["", "?cluster=true"])
def test_a_server_that_is_away_is_named_without_its_password(options: str) -> None:
    office = Office(f"redis://u:s3cret@127.0.0.1:{free_port()}/0{options}")
    refused = office("status").exception
    assert isinstance(refused, UnavailableError)
    assert "--sequences='redis://u:***@127.0.0.1" in str(refused)
    assert "s3cret" not in str(refused)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"HEADWAY_SEQUENCES": "redis://"}, "Invalid HEADWAY_SEQUENCES 'redis://': it na"),
        ({"HEADWAY_SEQUENCES": "redis://h/x"}, "'x' is no number of a database"),
        ({"HEADWAY_SEQUENCES": "redis://h:0/1"}, "its port is no number"),
        ({"HEADWAY_SEQUENCES": "redis://h/1?cluster=true"}, "a cluster has no numbered databases"),
        ({"HEADWAY_SEQUENCES": "redis://h?cluster=2"}, "cluster='2' is neither true nor false"),
        ({"HEADWAY_SEQUENCES": "kafka://h"}, "unsupported scheme 'kafka'"),
        ({"HEADWAY_SEQUENCE": "redis://h"}, "did you mean HEADWAY_SEQUENCES?"),
        ({"HEADWAY_BUS": "amqp://h"}, "HEADWAY_SEQUENCES is not set, and neither 'amqp://h'"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(
    settings: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    refused = CliRunner().invoke(app, ["order", "status", "--name", "orders"]).exception
    assert isinstance(refused, ConfigurationError)
    assert said in str(refused)


def test_sequences_are_in_the_file_that_is_bus_or_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office(f"sqlite:///{tmp_path}/headway.db")
    office.hold("a", 1, 3, family="orders")
    for settings in (
        {"HEADWAY_BUS": office.url},
        {"HEADWAY_BUS": "amqp://nowhere", "HEADWAY_STORE": office.url},
        {"HEADWAY_BUS": "amqp://nowhere", "HEADWAY_SEQUENCES": office.url},
    ):
        with monkeypatch.context() as given:
            for name, value in settings.items():
                given.setenv(name, value)
            found = CliRunner().invoke(app, ["order", "status", "--name", "orders", "--json"])
            assert [each["key"] for each in json.loads(found.stdout)] == ["a"]
            shown = json.loads(CliRunner().invoke(app, ["config", "show", "--json"]).stdout)
            assert shown["HEADWAY_SEQUENCES"] == office.url


def test_the_uptime_system_says_itself_where_and_for_how_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office(f"sqlite:///{tmp_path}/uptime.db")
    office.hold("a", 1, 3)
    monkeypatch.setenv("UPTIME_STORE", office.url)
    monkeypatch.setenv("UPTIME_TIME_SCALE", "20")
    (found,) = json.loads(
        CliRunner().invoke(app, ["order", "status", "--name", "uptime", "--json"]).stdout
    )
    waits = datetime.fromisoformat(found["gives_up"]) - datetime.fromisoformat(found["since"])
    assert waits == timedelta(hours=1)


def test_settings_of_ones_own_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office(f"sqlite:///{tmp_path}/shop.db")
    office.hold("a", 1, 3, family="orders")
    (tmp_path / "own_shop.py").write_text(
        "from datetime import timedelta\n"
        "from headway.core.sequence_settings import OnGap, SequenceSettings\n"
        "patience = SequenceSettings(schedule=(timedelta(minutes=7),), on_gap=OnGap.PARK)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["explain", "a", "--name", "orders", "--settings"]
    (found,) = office.json(*words, "own_shop:patience")
    waits = datetime.fromisoformat(found["gives_up"]) - datetime.fromisoformat(found["since"])
    assert waits == timedelta(minutes=7)
    assert "the key is parked, for a person to decide" in found["next"]
    refused = office(*words, "own_shop:nothing").exception
    assert isinstance(refused, ConfigurationError)
    assert "'own_shop:nothing' names no SequenceSettings" in str(refused)
