"""Who changed what, when and why is kept in the store, and `history` shows it."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway import Service, connect
from headway.testing.conformance.examples import ORDERS, QUEUES, letters_for
from tests.cli.offices import Office
from tests.cli.shops import COMMAND, ENVIRONMENT, Done, ShopFile, typed
from tests.engines.rabbitmq.by_hand import channel_to, put
from tests.engines.rabbitmq.engine import RabbitEngineHarness

HISTORY = "headway.history"


class Letters:
    """Failed queues somewhere, and commands on them."""

    def __init__(self, folder: Path, fill: Callable[[int], None], queue: str, **env: str) -> None:
        self.folder = folder
        self.fill = fill
        self.queue = queue
        self.env = env

    def __call__(self, *words: str, **env: str) -> Done:
        return typed("failed", *words, folder=self.folder, environment=self.env | env)

    def json(self, *words: str, **env: str) -> list[dict[str, Any]]:
        done = self(*words, "--json", **env)
        assert done.returncode == 0, done
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def started(self, *words: str, **streams: Any) -> "subprocess.Popen[bytes]":
        """Start a command as a process of its own."""
        command, env = [*COMMAND, "failed", *words], ENVIRONMENT | self.env
        return subprocess.Popen(command, env=env, cwd=self.folder, **streams)

    @property
    def ids(self) -> list[str]:
        return [each["letter_id"] for each in self.json("inspect", self.queue, "--limit", "1000")]


def on_sqlite(folder: Path) -> Letters:
    def fill(number: int) -> None:
        ShopFile(folder).fill(*({"bad": f"archive-{each}"} for each in range(number)))

    return Letters(folder, fill, "parsing.failed")


def on_rabbitmq(folder: Path, url: str, **env: str) -> Letters:
    def fill(number: int) -> None:
        async def write() -> None:
            harness = RabbitEngineHarness(url)
            parts = harness.open_parts()
            await parts.bus.open(QUEUES)
            names = [f"operation-{each}" for each in range(number)]
            await parts.letters.write(ORDERS.failed, letters_for(names, harness.clock.now()))
            await harness.close()

        asyncio.run(write())

    return Letters(folder, fill, ORDERS.failed, HEADWAY_BUS=url, **env)


@pytest.fixture(params=["sqlite", "rabbitmq"])
def letters(request: pytest.FixtureRequest, tmp_path: Path) -> Letters:
    if request.param == "sqlite":
        return on_sqlite(tmp_path)
    request.getfixturevalue("coarse_delays")
    return on_rabbitmq(tmp_path, request.getfixturevalue("rabbitmq_vhost"))


def test_a_requeue_and_a_purge_are_in_the_history(letters: Letters) -> None:
    letters.fill(3)
    assert letters.json("history", letters.queue) == []
    first, second, _ = letters.ids
    done = letters("requeue", letters.queue, "--limit", "1", SUDO_USER="alice")
    assert done.returncode == 0
    reason = "bad feed, #7, password=hunter2"
    done = letters("purge", letters.queue, "--id", second[:10], "--yes", "--reason", reason)
    assert done.returncode == 0, done
    purge, requeue = letters.json("history", letters.queue)
    for entry in (purge, requeue):
        assert entry["queue"] == letters.queue
        assert (entry["outcome"], entry["done"], entry["chosen"]) == ("complete", 1, 1)
        assert "@" in entry["who"]
        assert entry["at"].startswith("20")
    assert (requeue["what"], requeue["ids"], requeue["reason"]) == ("requeue", [first], "")
    assert requeue["selection"] == "limit=1"
    assert requeue["who"].startswith("alice as ")
    assert (purge["what"], purge["ids"]) == ("purge", [second])
    assert purge["reason"] == "bad feed, #7, password=***"
    for _ in range(2):  # reading takes nothing away
        assert letters.json("history") == [purge, requeue]
    assert letters.json("history", "--limit", "1") == [purge]
    assert "bad feed, #7" in letters("history", letters.queue, COLUMNS="160").stdout


def test_what_changes_nothing_is_not_in_the_history(letters: Letters) -> None:
    letters.fill(2)
    before = letters.ids
    letters("requeue", letters.queue, "--dry-run")
    letters("purge", letters.queue, "--dry-run")
    assert letters("purge", letters.queue).returncode == 2  # it asks, and there is no terminal
    assert letters("purge", letters.queue, "--id", "nosuch", "--yes").returncode == 1
    for words in (["purge", "--yes"], ["requeue"], ["export"]):
        for empty in ("", "  "):
            done = letters(words[0], letters.queue, *words[1:], "--id", empty)
            assert (done.returncode, done.stdout) == (2, ""), done
            assert "--id" in done.stderr
    assert letters.ids == before
    assert letters.json("history", letters.queue) == []


def test_a_killed_command_is_in_the_history_with_an_unknown_outcome(letters: Letters) -> None:
    letters.fill(30)
    with letters.started(
        *("requeue", letters.queue, "--rate", "2"), stdout=subprocess.DEVNULL
    ) as process:
        while not letters.json("history"):
            assert process.poll() is None, "it takes at least 15 s"
        process.send_signal(signal.SIGKILL)
    (entry,) = letters.json("history", letters.queue)
    assert (entry["what"], entry["outcome"], entry["chosen"]) == ("requeue", "intended", 30)
    assert "? of 30" in letters("history", letters.queue).stdout


@pytest.mark.usefixtures("coarse_delays")
def test_changes_without_the_store_are_shown_beside_those_in_the_store(
    tmp_path: Path, rabbitmq_vhost: str
) -> None:
    store = f"sqlite:///{tmp_path}/store.db"

    async def make() -> None:
        async with connect(store) as made:
            await made.declare(Service("any"))

    asyncio.run(make())
    letters = on_rabbitmq(tmp_path, rabbitmq_vhost)
    letters.fill(2)
    assert letters("purge", letters.queue, "--limit", "1", "--yes").returncode == 0
    with channel_to(rabbitmq_vhost) as channel:
        # What the worker put there at its start, and two entries.
        assert channel.queue_declare(HISTORY, passive=True).method.message_count == 3
    done = letters("purge", letters.queue, "--limit", "1", "--yes", HEADWAY_STORE=store)
    assert done.returncode == 0, done
    assert len(letters.json("history")) == 1
    newest, oldest = letters.json("history", HEADWAY_STORE=store)
    assert newest["at"] >= oldest["at"]
    assert {newest["what"], oldest["what"]} == {"purge"}


@pytest.mark.usefixtures("coarse_delays")
def test_odd_entries_are_shown_and_hide_no_other(tmp_path: Path, rabbitmq_vhost: str) -> None:
    letters = on_rabbitmq(tmp_path, rabbitmq_vhost)
    letters.fill(1)
    letters("purge", letters.queue, "--yes", "--reason", "a true one")
    odd: list[dict[str, Any]] = [
        {"at": 1700000123},
        {"at": ["soon"], "change": ["x"], "outcome": {}, "who": None},
        {"at": {"a": 1}, "change": {"b": 2}, "selection": 7, "reason": 7, "error": 7},
        {"at": "0001-01-01T00:00:00+14:00", "change": 7, "ids": 7, "done": "x", "chosen": []},
        {"at": True, "what": 7},
        {},
    ]
    for each in odd:
        entry = {"queue": letters.queue, **each}
        put(rabbitmq_vhost, HISTORY, msgspec.json.encode([entry]))
    assert len(letters.json("history", letters.queue)) == 1 + len(odd)
    for columns in ("40", "160"):
        done = letters("history", letters.queue, COLUMNS=columns)
        assert (done.returncode, done.stderr) == (0, "")
        for expected in ("a true one", "1700000123", "soon"):
            assert expected in done.stdout
    put(rabbitmq_vhost, HISTORY, msgspec.json.encode([{"queue": [1]}]))
    assert letters("history").returncode == 0


@pytest.mark.parametrize("engine", ["sqlite", "redis"])
def test_a_drain_is_in_the_history_of_its_resequencer(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/headway.db"
    office = Office(request.getfixturevalue("redis_database") if engine == "redis" else url)
    office.hold("a", 1, 4)
    office.hold("b", 1, 3)
    office.hold("c", 1, 3, family="others")
    assert isinstance(office("drain", "", "--yes").exception, ValueError)
    assert office("drain", "b", "--dry-run").exit_code == 0
    assert office.json("history") == []
    assert office("drain", "a", "--yes", "--reason", "sensor replaced").exit_code == 0
    assert office("drain", "--all", "--yes").exit_code == 0
    everything, one = office.json("history")
    assert (everything["selection"], everything["ids"], everything["reason"]) == ("all", ["b"], "")
    assert (one["what"], one["sequences"], one["selection"]) == ("drain", "uptime", "keys=a")
    assert (one["reason"], one["outcome"], one["done"]) == ("sensor replaced", "complete", 1)
    assert (one["gaps"], one["held"], one["on_gap"]) == ({"a": [[2, 3, 1]]}, 1, "backfill")
    assert "@" in one["who"]
    assert office.json("history", "--name", "others") == []
    assert "sensor replaced" in office("history").stdout
