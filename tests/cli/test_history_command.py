"""Who changed what, when and why is kept in the store, and `history` shows it."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headway import Service, connect
from headway.adapters.rabbitmq.topology import HISTORY
from headway.testing.conformance.examples import ORDERS, QUEUES, letters_for
from tests.cli.offices import Office
from tests.cli.shops import ShopFile
from tests.engines.rabbitmq.by_hand import channel_to, put
from tests.engines.rabbitmq.engine import RabbitEngineHarness

COMMAND = (sys.executable, "-m", "headway.apps.cli")


class Letters:
    """Failed queues somewhere, and commands on them."""

    def __init__(self, folder: Path, fill: Callable[[int], None], queue: str, **env: str) -> None:
        self.folder = folder
        self.fill = fill
        self.queue = queue
        self.env = {"PATH": "/usr/bin:/bin", "HOME": "/", "COLUMNS": "80", **env}

    def __call__(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*COMMAND, "failed", *words],
            env=self.env | env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def json(self, *words: str, **env: str) -> list[dict[str, Any]]:
        done = self(*words, "--json", **env)
        assert done.returncode == 0, done
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    @property
    def ids(self) -> list[str]:
        return [each["letter_id"] for each in self.json("inspect", self.queue, "--limit", "1000")]


def on_sqlite(folder: Path) -> Letters:
    shop = ShopFile(folder)
    return Letters(
        folder, lambda n: shop.fill(*({"bad": f"archive-{i}"} for i in range(n))), "parsing.failed"
    )


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
    assert letters("requeue", letters.queue, "--limit", "1").returncode == 0
    done = letters("purge", letters.queue, "--id", second[:10], "--yes", "--reason", "bad feed, #7")
    assert done.returncode == 0, done
    purge, requeue = letters.json("history", letters.queue)
    for entry in (purge, requeue):
        assert entry["queue"] == letters.queue
        assert (entry["outcome"], entry["done"], entry["chosen"]) == ("complete", 1, 1)
        assert "@" in entry["who"]
        assert entry["at"].startswith("20")
    assert (requeue["what"], requeue["ids"], requeue["reason"]) == ("requeue", [first], "")
    assert requeue["selection"] == "limit=1"
    assert (purge["what"], purge["ids"], purge["reason"]) == ("purge", [second], "bad feed, #7")
    for _ in range(3):  # reading takes nothing away
        assert letters.json("history") == [purge, requeue]
    assert letters.json("history", "--limit", "1") == [purge]
    shown = letters("history", letters.queue, COLUMNS="160").stdout.splitlines()
    assert shown[0].split() == ["when", "who", "what", "queue", "letters", "which", "why"]
    assert "bad feed, #7" in shown[2]


def test_the_history_names_the_person_behind_sudo(tmp_path: Path) -> None:
    letters = on_sqlite(tmp_path)
    letters.fill(1)
    assert letters("requeue", letters.queue, SUDO_USER="alice").returncode == 0
    (entry,) = letters.json("history", letters.queue)
    assert entry["who"].startswith("alice as ")


def test_secrets_in_a_reason_are_not_kept(letters: Letters) -> None:
    letters.fill(1)
    reason = "customer sent password=hunter2"
    assert letters("purge", letters.queue, "--yes", "--reason", reason).returncode == 0
    (purge,) = letters.json("history")
    assert purge["reason"] == "customer sent password=***"


def test_what_changes_nothing_is_not_in_the_history(letters: Letters) -> None:
    letters.fill(1)
    letters("requeue", letters.queue, "--dry-run")
    letters("purge", letters.queue, "--dry-run")
    assert letters("purge", letters.queue).returncode == 2  # it asks, and there is no terminal
    assert letters("purge", letters.queue, "--id", "nosuch", "--yes").returncode == 1
    assert letters.json("history", letters.queue) == []
    assert "yet" in letters("history").stdout


def test_an_empty_or_ambiguous_id_changes_nothing(letters: Letters) -> None:
    letters.fill(4)
    before = letters.ids
    for words in (["purge", "--yes"], ["requeue"], ["export"]):
        for empty in ("", "  "):
            done = letters(words[0], letters.queue, *words[1:], "--id", empty)
            assert (done.returncode, done.stdout) == (2, ""), done
            assert "Invalid --id" in done.stderr
    assert letters.ids == before


def test_a_killed_purge_is_in_the_history_with_an_unknown_outcome(letters: Letters) -> None:
    letters.fill(30)
    with subprocess.Popen(
        [*COMMAND, "failed", "requeue", letters.queue, "--rate", "2"],
        env=letters.env,
        cwd=letters.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        while len(letters.json("history")) == 0:
            assert process.poll() is None, "it takes at least 15 s"
        process.send_signal(signal.SIGKILL)
    (entry,) = letters.json("history", letters.queue)
    assert (entry["what"], entry["outcome"], entry["chosen"]) == ("requeue", "intended", 30)
    said = letters("history", letters.queue).stdout
    assert "? of 30" in said
    assert "its process was killed" in said


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    outer, inner = pty.openpty()
    yield outer, inner
    os.close(outer)


def test_a_person_at_a_terminal_is_recorded_too(
    letters: Letters, terminal: tuple[int, int]
) -> None:
    letters.fill(1)
    outer, inner = terminal
    with subprocess.Popen(
        [*COMMAND, "failed", "purge", letters.queue, "--yes"],
        env=letters.env,
        cwd=letters.folder,
        stdin=inner,
        stdout=inner,
        stderr=inner,
    ) as process:
        os.close(inner)
        assert process.wait(timeout=60) == 0
    assert b"1 of 1 letter" in os.read(outer, 10_000)
    (entry,) = letters.json("history", letters.queue)
    assert (entry["what"], entry["done"]) == ("purge", 1)


@pytest.mark.usefixtures("coarse_delays")
def test_changes_without_the_store_are_shown_beside_those_in_the_store(
    tmp_path: Path, rabbitmq_vhost: str
) -> None:
    store = f"sqlite:///{tmp_path}/store.db"

    async def make() -> None:
        async with connect(f"sqlite:///{tmp_path}/store.db") as made:
            await made.declare(Service("any"))

    asyncio.run(make())
    letters = on_rabbitmq(tmp_path, rabbitmq_vhost)
    letters.fill(2)
    assert letters("purge", letters.queue, "--limit", "1", "--yes").returncode == 0
    done = letters("purge", letters.queue, "--limit", "1", "--yes", HEADWAY_STORE=store)
    assert done.returncode == 0, done
    assert len(letters.json("history")) == 1
    newest, oldest = letters.json("history", HEADWAY_STORE=store)
    assert newest["at"] >= oldest["at"]
    assert {newest["what"], oldest["what"]} == {"purge"}


@pytest.mark.usefixtures("coarse_delays")
def test_on_rabbitmq_it_is_a_durable_queue(tmp_path: Path, rabbitmq_vhost: str) -> None:
    letters = on_rabbitmq(tmp_path, rabbitmq_vhost)
    letters.fill(1)
    letters("purge", letters.queue, "--yes")
    with channel_to(rabbitmq_vhost) as channel:
        # What the worker put there at its start, and two entries.
        assert channel.queue_declare(HISTORY, passive=True).method.message_count == 3


@pytest.mark.usefixtures("coarse_delays")
@pytest.mark.parametrize("columns", ["40", "160"])
def test_odd_entries_are_shown_and_hide_no_other(
    tmp_path: Path, rabbitmq_vhost: str, columns: str
) -> None:
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
    done = letters("history", letters.queue, COLUMNS=columns)
    assert (done.returncode, done.stderr) == (0, "")
    for expected in ("a true one", "1700000123", "soon"):
        assert expected in done.stdout
    put(rabbitmq_vhost, HISTORY, msgspec.json.encode([{"queue": [1]}]))
    assert letters("history", COLUMNS=columns).returncode == 0


async def test_a_program_reads_the_history_too(tmp_path: Path) -> None:
    shop = ShopFile(tmp_path)
    await asyncio.to_thread(shop.fill, {"bad": "archive"})
    async with connect(shop.url) as headway:
        await headway.failed.purge("parsing", reason="test data")
        (entry,) = await headway.failed.history("parsing")
    assert (entry["who"], entry["reason"], entry["done"]) == ("a program", "test data", 1)


@pytest.fixture(params=["sqlite", "redis"])
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Office:
    if request.param == "redis":
        return Office(request.getfixturevalue("redis_database"))
    return Office(f"sqlite:///{tmp_path}/headway.db")


def test_a_drain_is_in_the_history_of_its_resequencer(office: Office) -> None:
    office.hold("a", 1, 4)
    office.hold("b", 1, 3)
    office.hold("c", 1, 3, family="others")
    assert office("drain", "a", "--yes", "--reason", "sensor replaced").exit_code == 0
    assert office("drain", "--all", "--yes").exit_code == 0
    assert office("drain", "b", "--dry-run").exit_code == 0
    everything, one = office.json("history")
    assert (everything["selection"], everything["ids"], everything["reason"]) == ("all", ["b"], "")
    assert (one["what"], one["sequences"], one["selection"]) == ("drain", "uptime", "keys=a")
    assert (one["reason"], one["outcome"], one["done"]) == ("sensor replaced", "complete", 1)
    assert (one["gaps"], one["held"], one["on_gap"]) == ({"a": [[2, 3, 1]]}, 1, "backfill")
    assert "@" in one["who"]
    assert office.json("history", "--name", "others") == []
    assert "because: sensor replaced" in office("history").stdout


def test_an_empty_key_drains_nothing(office: Office) -> None:
    office.hold("a", 1, 4)
    done = office("drain", "", "--yes")
    assert "Invalid keys=" in str(done.exception)
    assert office.json("history") == []
    assert office.look("a").work is None


def test_an_unset_variable_changes_no_document(tmp_path: Path) -> None:
    shop = ShopFile(tmp_path)
    shop.work()
    shop.put("messages", "a", status="failed_max_retries")
    for words in (["reset"], ["purge", "--yes"], ["archive"], ["restore"], ["export"]):
        verb, *options = words
        done = shop.typed("documents", verb, "messages", "", *options)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert "Invalid ids=" in done.stderr
    assert [each["status"] for each in shop.documents("messages")] == ["failed_max_retries"]
