"""`headway order` on a real file and a real Redis."""

import asyncio
import json
import re
import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headway import ConfigurationError, Resequencer
from headway.order import OnGap, SequenceSettings, Turn
from headway.testing.servers.loopback import free_port
from tests.cli.offices import Office
from tests.cli.shops import NASTY, asked, typed, unprintable

MINUTE = 60_000
FOUR = 1_763_265_600_000
"""04:00 in milliseconds."""


@pytest.fixture(params=["sqlite", "redis"])
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Office:
    if request.param == "redis":
        return Office(request.getfixturevalue("redis_database"))
    return Office(f"sqlite:///{tmp_path}/headway.db")


@pytest.fixture
def file(tmp_path: Path) -> Office:
    return Office(f"sqlite:///{tmp_path}/shop.db")


def waits(found: dict[str, str]) -> timedelta:
    return datetime.fromisoformat(found["gives_up"]) - datetime.fromisoformat(found["since"])


def test_status_shows_what_each_key_expects_holds_and_misses(office: Office) -> None:
    office.hold("idle", 1, 2)
    assert office.json("status") == []
    office.hold("shop-17", 1, 4, 5)
    (line,) = [line for line in office("status").stdout.splitlines() if line.startswith("shop-17")]
    assert line.split()[:5] == ["shop-17", "waiting", "2", "2", "2"]
    (found,) = office.json("status")
    assert (found["key"], found["mode"], found["expected"]) == ("shop-17", "waiting", 2)
    assert found["missing"] == [{"first": 2, "last": 3, "step": 1, "count": 2}]
    assert (found["held"], found["applied"]) == ([4, 5], 1)
    (idle,) = office.json("status", "idle")
    assert (idle["mode"], idle["held"], idle["applied"]) == ("idle", [], 2)
    office.hold("another", 1, 3)
    assert "1 more" in office("status", "--limit", "1").stdout
    office.hold("a", 1, 3, family="orders")
    assert [each["key"] for each in office.json("status", "--name", "orders")] == ["a"]
    assert len(office.json("status")) == 2


def test_explain_says_what_happens_next_and_when(office: Office) -> None:
    office.hold("subscription-a", FOUR, FOUR + 2 * MINUTE, step=MINUTE)
    said = " ".join(office("explain", "subscription-a").stdout.split())
    assert f"{FOUR + MINUTE} (2025-11-16 04:01:00Z)" in said
    assert f"{FOUR + 2 * MINUTE} (2025-11-16 04:02:00Z)" in said
    (found,) = office.json("explain", "subscription-a", "--contents")
    assert found["gives_up"] > found["next_look"] > found["since"]
    assert found["contents"] == [{"position": FOUR + 2 * MINUTE, "payload": '{"status":"success"}'}]


@pytest.mark.parametrize("words", ["explain nobody", "status nobody", "drain", "drain a --all"])
def test_an_unknown_key_and_a_drain_of_nothing_in_particular_are_refused(
    office: Office, words: str
) -> None:
    office.hold("a", 1, 3)
    refused = office(*words.split()).exception
    assert isinstance(refused, ConfigurationError)
    assert ("nobody" in words) == ("'nobody'" in str(refused))
    assert office.look("a").work is None


def test_a_drain_is_shown_first_asks_and_is_recorded(office: Office) -> None:
    office.hold("a", 1, 3, 5)
    dry = office("drain", "a", "--dry-run")
    assert "2 positions" in dry.stdout
    refused = office("drain", "a")
    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert office.look("a").work is None
    record = json.loads(office("drain", "a", "--yes").stderr.splitlines()[-1])
    assert (record["change"], record["sequences"], record["held"]) == ("drain", "uptime", 2)
    assert record["gaps"] == {"a": [[2, 2, 1], [4, 4, 1]]}
    assert "@" in record["operator"]
    work = office.look("a").work
    assert work is not None
    assert work.gap is not None
    assert (work.position, work.gap.first, work.gap.why) == (3, 2, "operator")


def test_a_drain_of_all_and_of_what_is_not_there(office: Office) -> None:
    for key in ("a", "b"):
        office.hold(key, 1, 3)
    office.hold("idle", 1)
    done = office("drain", "idle", "nobody", "--yes")
    assert done.exit_code == 1
    assert "idle" in done.stdout
    assert "nobody" in done.stdout
    assert "2 of 2 keys" in office("drain", "--all", "--yes").stdout
    assert office("drain", "--all", "--yes").exit_code == 0


def test_hostile_names_say_nothing_to_the_terminal(office: Office) -> None:
    office.hold(NASTY, 1, 3)
    for words in (["status"], ["explain", NASTY], ["drain", NASTY, "--dry-run"]):
        done = office(*words)
        assert done.exit_code == 0, done.output
        assert unprintable(done.stdout) == []
    assert unprintable(office("status", "--json").stdout) == []


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_a_person_is_asked_and_sees_what_is_meant(file: Office, answer: bytes, code: int) -> None:
    file.hold("shop-17", 1, 3)
    words = ("order", "drain", "shop-17", "--name", "uptime", "--sequences", file.url)
    ended, said = asked(Path.cwd(), *words, answer=answer)
    assert (ended, "shop-17" in said) == (code, True)
    assert (file.look("shop-17").work is not None) == (code == 0)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"HEADWAY_SEQUENCES": "redis://"}, "HEADWAY_SEQUENCES 'redis://'"),
        ({"HEADWAY_SEQUENCES": "redis://h/x"}, "'x'"),
        ({"HEADWAY_SEQUENCES": "redis://h:0/1"}, "port"),
        ({"HEADWAY_SEQUENCES": "redis://h/1?cluster=true"}, "cluster"),
        ({"HEADWAY_SEQUENCES": "redis://h?cluster=2"}, "cluster='2'"),
        ({"HEADWAY_SEQUENCES": "kafka://h"}, "'kafka'"),
        ({"HEADWAY_SEQUENCES": "sqlite:///none.db"}, "none.db"),
        ({"HEADWAY_SEQUENCE": "redis://h"}, "HEADWAY_SEQUENCES?"),
        ({"HEADWAY_BUS": "amqp://h"}, "HEADWAY_SEQUENCES"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(
    settings: dict[str, str], named: str, tmp_path: Path
) -> None:
    words = ("order", "status", "--name", "orders")
    done = typed(*words, folder=tmp_path, environment=settings)
    assert (done.returncode, named in done.stderr) == (2, True), done
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", ["", "?cluster=true"])
def test_a_server_that_is_away_is_named_without_its_password(options: str) -> None:
    url = f"redis://u:s3cret@127.0.0.1:{free_port()}/0{options}"
    done = typed("order", "status", "--sequences", url)
    assert (done.returncode, "s3cret" in done.stderr) == (3, False)
    assert "--sequences='redis://u:***@127.0.0.1" in done.stderr


def test_sequences_are_in_the_file_that_is_bus_or_store(file: Office) -> None:
    file.hold("a", 1, 3, family="orders")
    for settings in (
        {"HEADWAY_BUS": file.url},
        {"HEADWAY_BUS": "amqp://nowhere", "HEADWAY_STORE": file.url},
        {"HEADWAY_BUS": "amqp://nowhere", "HEADWAY_SEQUENCES": file.url},
    ):
        found = typed("order", "status", "--name", "orders", "--json", environment=settings)
        assert [each["key"] for each in json.loads(found.stdout)] == ["a"]
        shown = json.loads(typed("config", "show", "--json", environment=settings).stdout)
        assert shown["HEADWAY_SEQUENCES"] == file.url


OWN = """
from datetime import timedelta
from headway.order import OnGap, SequenceSettings
patience = SequenceSettings(schedule=(timedelta(minutes=7),), on_gap=OnGap.PARK)
parked = SequenceSettings(on_gap=OnGap.PARK, breaker=1)
"""


def test_a_system_or_a_person_says_for_how_long_a_key_waits(file: Office, tmp_path: Path) -> None:
    file.hold("a", 1, 3)
    uptime = {"UPTIME_STORE": file.url, "UPTIME_TIME_SCALE": "20"}
    done = typed("order", "status", "--name", "uptime", "--json", environment=uptime)
    assert waits(*json.loads(done.stdout)) == timedelta(hours=1)
    (tmp_path / "shop.py").write_text(OWN)
    words = ("order", "explain", "a", "--name", "uptime", "--sequences", file.url, "--json")
    done = typed(*words, "--settings", "shop:patience", folder=tmp_path)
    assert waits(*json.loads(done.stdout)) == timedelta(minutes=7)
    refused = typed(*words, "--settings", "shop:nothing", folder=tmp_path)
    assert (refused.returncode, "'shop:nothing'" in refused.stderr) == (2, True)


def hold(url: str, name: str | None, key: str, settings: SequenceSettings) -> None:
    """Apply a first result, and hold one behind a gap."""
    named: dict[str, Any] = {} if name is None else {"name": name}

    def apply(_work: Turn) -> None:
        """Nothing to do."""

    async def offer() -> None:
        async with Resequencer(apply, url=url, settings=settings, **named) as order:
            await order.offer(key, 1)
            assert await order.offer(key, 3) == "held"

    asyncio.run(offer())


def advice(said: str) -> list[list[str]]:
    """Give the commands that a text tells people to type, as a shell reads them."""
    lines = re.findall(r"^\s*headway (order .+?)\s*$", said, re.MULTILINE)
    return [
        subprocess.check_output(["/bin/bash", "-c", f"printf '%s\\0' {line}"])
        .decode()
        .split("\0")[:-1]
        for line in lines
    ]


@pytest.mark.parametrize("name", [None, "orders", "night shift"])
@pytest.mark.parametrize("key", ["sensor-7", "two words", "it's", "-dash", "line\nbreak"])
def test_advice_can_be_pasted(tmp_path: Path, name: str | None, key: str) -> None:
    hold(f"sqlite:///{tmp_path}/headway.db", name, key, SequenceSettings(on_gap=OnGap.PARK))
    named = () if name is None else ("--name", name)
    status = typed("order", "status", *named, folder=tmp_path)
    (explain,) = advice(status.stdout)
    explained = typed(*explain, folder=tmp_path)
    assert (explained.returncode, "waiting" in explained.stdout) == (0, True)
    unknown = typed("order", "explain", "nosuch", *named, folder=tmp_path)
    (again,) = advice(unknown.stderr)
    assert advice(typed(*again, folder=tmp_path).stdout) == [explain]


def test_advice_for_a_parked_key_drains_it(file: Office, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(OWN)
    hold(file.url, "orders", "sensor-7", SequenceSettings(on_gap=OnGap.PARK, breaker=1))
    where = ("--name", "orders", "--sequences", "sqlite:///shop.db", "--settings", "shop:parked")
    said = typed("order", "explain", "sensor-7", *where, folder=tmp_path).stdout
    assert "parked" in said
    (drain,) = advice(said)
    done = typed(*drain, "--yes", folder=tmp_path)
    assert (done.returncode, "1 of 1 key" in done.stdout) == (0, True), done


def test_a_wrong_name_is_answered_with_commands_for_the_right_ones(file: Office) -> None:
    for name in ("orders", "night shift"):
        file.hold("a", 1, 3, family=name)
    commands = advice(file("status").stdout)
    assert len(commands) == 2
    for command in commands:
        assert "waiting" in typed(*command).stdout


def test_a_password_is_never_part_of_the_advice(redis_database: str) -> None:
    Office(redis_database).hold("a", 1, 3)
    secret = redis_database.replace("redis://", "redis://default:s3cret-pw@", 1)
    done = typed("order", "status", "--name", "uptime", "--sequences", secret)
    assert "s3cret-pw" not in done.stdout + done.stderr
    assert advice(done.stdout) == [
        ["order", "explain", "a", "--name", "uptime", "--sequences", "URL"]
    ]
