"""`headway sweep` on a real file."""

import json
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shops import COMMAND, ENVIRONMENT, WITH_CTRL_C, Done, ShopFile, typed, unprintable

MODULE = """
from headway import Service

parsing, mailing = Service("parsing"), Service("mailing")

@parsing.on("ArchiveIngested", documents=("archives", "archive_ids"), rebuild=lambda d: {
    "archive_ids": [d["_id"]], "source": d["source"],
})
async def parse(event, work): ...

@parsing.on("JSONParsed", documents=("messages", "message_ids"))
async def chunk(event, work): ...

@mailing.on("Welcome")
async def welcome(event, work): ...
"""
LAST_YEAR = "2020-01-01T00:00:00Z"
AWAY = {"HEADWAY_BUS": "amqp://me:s3cret@127.0.0.1:1/shop"}


def ago(**age: float) -> str:
    return (datetime.now(UTC) - timedelta(**age)).isoformat()


class SweepShop(ShopFile):
    """A file with stuck documents, and a module with services."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "shop.py").write_text(MODULE)
        self.work()  # a service was started, so the file is there

    def stuck(self, collection: str, count: int) -> None:
        """Write documents that failed last year."""
        given = {"status": "failed", "attemptCount": 1, "lastAttemptTime": LAST_YEAR}
        ids = [f"{collection[0]}{number:04}" for number in range(count)]
        with closing(sqlite3.connect(self.path)) as file, file:
            file.executemany(
                "insert into headway_documents (collection, id, body) values (?, ?, ?)",
                [(collection, one, json.dumps({"_id": one, **given})) for one in ids],
            )

    def sweep(self, *words: str, **environment: str) -> Done:
        given = ("sweep", "shop:parsing", *words)
        return typed(*given, folder=self.folder, environment=environment)

    def swept(self, *words: str) -> Any:
        return json.loads(self.sweep(*words, "--json").stdout)

    def started(self, *words: str, env: Mapping[str, str], **streams: Any) -> Any:
        """Start the command as a process of its own."""
        return subprocess.Popen(
            [*WITH_CTRL_C, *COMMAND, *words],
            env={**ENVIRONMENT, **env},
            cwd=self.folder,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        )

    def query(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as file:
            return [one for (one,) in file.execute(statement).fetchall()]

    def queued(self) -> list[str]:
        found = self.query("select operation from headway_items")
        # Without the moment of the claim, which cannot be known beforehand.
        return sorted(re.sub(r"^(sweep-1)@\S+?Z:", r"\1:", operation) for operation in found)

    def status(self, collection: str) -> dict[str, tuple[Any, Any]]:
        return {
            each["_id"]: (each.get("status"), each.get("attemptCount"))
            for each in self.documents(collection)
        }


@pytest.fixture
def shop(tmp_path: Path) -> SweepShop:
    return SweepShop(tmp_path)


def test_one_sweep_sends_what_is_due_and_says_so(shop: SweepShop) -> None:
    shop.stuck("messages", 2)
    shop.put("messages", "spent", status="failed", attemptCount=3, lastAttemptTime=LAST_YEAR)
    shop.put("messages", "waits", status="failed", attemptCount=2, lastAttemptTime=ago())
    shop.put("archives", "a", status="pending", source="mail")
    done = shop.sweep("--once")
    assert done.returncode == 0
    heading, _, archives, messages = done.stdout.splitlines()
    assert re.split(r"\s{2,}", heading.strip()) == [
        *("collection", "stuck", "requeued", "backoff", "left alone", "given up", "errors"),
    ]
    assert archives.split() == ["archives", "0", "1", "0", "0", "0", "0"]
    assert messages.split() == ["messages", "1", "2", "1", "0", "1", "0"]
    expected = ["sweep-1:archives:a", "sweep-1:messages:m0000", "sweep-1:messages:m0001"]
    assert shop.queued() == expected
    assert shop.status("messages")["spent"] == ("failed_max_retries", 3)
    last = json.loads(done.stderr.splitlines()[-1])
    assert (last["status"], last["requeued"]) == ("success", 3)


def test_for_machines_each_run_is_a_list(shop: SweepShop) -> None:
    shop.stuck("messages", 3)
    shop.put("archives", "a", status="pending", source="mail")
    (found,) = shop.swept("--once", "--limit", "2", "--collection", "messages")
    assert found == {
        "collection": "messages",
        "stuck": 1,
        "failed_max_retries": 0,
        "failed_permanently": 0,
        "requeued": 2,
        "skipped": {"held_back": 1},
        "given_up": 0,
        "held_back": 1,
        "errors": {},
        "broken_by": None,
    }
    assert [one["collection"] for one in shop.swept("--once")] == ["archives", "messages"]


def test_a_run_with_an_error_exits_with_1_and_says_which(shop: SweepShop) -> None:
    shop.put("archives", "bad", status="pending")
    shop.stuck("messages", 1)
    done = shop.sweep("--once")
    assert done.returncode == 1
    assert "1 KeyError" in done.stdout
    command = ("documents", "archive", "archives", "bad", "--stuck")
    assert f"headway {' '.join(command)}" in " ".join(done.stderr.split())
    assert shop.queued() == ["sweep-1:messages:m0000"]
    assert shop.status("archives") == {"bad": ("pending", None)}
    assert shop(*command).exit_code == 0
    assert shop.sweep("--once").returncode == 0


def test_what_is_stuck_is_counted_alike_wherever_it_is_counted(shop: SweepShop) -> None:
    tried = {
        "status": "pending",
        "attemptCount": 1,
        "source": "mail",
        "lastAttemptTime": ago(minutes=2),
    }
    shop.put("archives", "died", **tried, leaseToken="dead", leaseUntil=ago(minutes=1))
    shop.put("archives", "at work", **tried, leaseToken="alive", leaseUntil=ago(minutes=-1))
    shop.put("archives", "new", status="pending", createdAt=ago())
    shop.put("archives", "later", status="failed", attemptCount=1, retryAt=ago(hours=-2))
    only = ("--collection", "archives")
    (seen,) = shop.swept("--dry-run", *only)
    assert (seen["stuck"], seen["requeue"]["count"]) == (2, 0)
    (swept,) = shop.swept("--once", *only)
    assert (swept["stuck"], swept["skipped"]["backoff"]) == (2, 1)
    service = ("--service", "shop:parsing", "--json")
    listed = shop.typed("documents", "stuck", "archives", *service)
    assert {each["_id"] for each in json.loads(listed.stdout)} == {"died", "later"}


def test_what_keeps_a_run_from_beginning_is_told_to_machines_too(shop: SweepShop) -> None:
    shop.stuck("messages", 1)
    done = shop.sweep("--once", "--json", **AWAY, HEADWAY_STORE=shop.url)
    assert done.returncode == 3
    for one in json.loads(done.stdout):
        (kind,) = one["errors"]
        assert one["errors"][kind] == 1
        assert one["broken_by"].startswith(f"{kind}: ")
        assert "127.0.0.1" in one["broken_by"]
    assert "s3cret" not in done.stdout + done.stderr
    # A store that is away is named, and not the bus.
    both = {**AWAY, "HEADWAY_STORE": "postgresql://me:s3cret@127.0.0.1:1/shop"}
    away = shop.sweep("--dry-run", **both)
    assert away.returncode == 3
    assert "HEADWAY_STORE='postgresql://me:***@127.0.0.1:1/shop'" in away.stderr


def test_a_collection_that_looks_mistyped_is_warned_of(shop: SweepShop) -> None:
    shop.put("archives", "a", status="processed")
    shop.put("letters", "l", status="processed")
    assert "did you mean" not in shop.sweep("--once").stderr
    shop.put("message", "m", status="pending")
    shop.put("archive", "a", status="pending")  # and there are archives too
    done = shop.sweep("--once")
    assert (done.returncode, done.stderr.count("did you mean message?")) == (0, 1)
    assert "did you mean archive?" not in done.stderr
    assert shop.sweep("--dry-run").stdout.count("did you mean message?") == 1


def test_a_dry_run_changes_nothing_and_says_what_would_happen(shop: SweepShop) -> None:
    shop.stuck("messages", 7)
    shop.put("messages", "spent", status="failed", attemptCount=3, lastAttemptTime=LAST_YEAR)
    shop.put("messages", "later", status="failed", attemptCount=1, retryAt=ago(hours=-2))
    shop.put("archives", "bad", status="pending")
    before = shop.path.read_bytes()
    archives, messages = shop.swept("--dry-run", "--limit", "6")
    assert (archives["stuck"], archives["requeue"]["count"]) == (1, 0)
    assert (messages["stuck"], messages["give_up"]) == (9, {"count": 1, "first": ["spent"]})
    assert messages["requeue"] == {"count": 6, "first": [f"m000{n}" for n in (6, 5, 4, 3, 2)]}
    assert messages["skipped"]["scheduled"] == {"count": 1, "first": ["later"]}
    assert messages["skipped"]["held_back"] == {"count": 1, "first": ["m0000"]}
    said = shop.sweep("--dry-run", "--limit", "6").stdout
    for named in ("KeyError", "spent", "m0000", "later", "RETRY_JOB_LIMIT"):
        assert named in said
    assert shop.path.read_bytes() == before
    assert shop.queued() == []


def test_ids_from_outside_do_not_speak_to_the_terminal(shop: SweepShop) -> None:
    shop.put("messages", "\x1b[2Jgone\u202e", status="failed", attemptCount=1)
    for words in (("--dry-run",), ("--dry-run", "--json"), ("--once",), ("--once", "--json")):
        assert unprintable(shop.sweep(*words).stdout) == []


REFUSED: dict[str, tuple[str, dict[str, str], str]] = {
    "no services": ("--once", {}, "HEADWAY_SERVICES"),
    "a setting that was meant": ("", {"HEADWAY_SERVICE": "shop"}, "HEADWAY_SERVICES?"),
    "nothing to sweep": ("shop:mailing", {}, "nothing to sweep"),
    "no such collection": ("shop:parsing --collection mesages", {}, "messages?"),
    "a setting": (
        "shop:parsing",
        {"RETRY_JOB_INTERVAL_SECONDS": "soon"},
        "INTERVAL_SECONDS='soon'",
    ),
    "misspelt": ("shop:parsing", {"RETRY_JOB_INTERVALL": "9"}, "RETRY_JOB_INTERVAL_SECONDS?"),
    "no file": ("shop:parsing --bus sqlite:///nowhere.db", {}, "nowhere.db"),
    "commas": ("", {"HEADWAY_SERVICES": "shop:parsing,shop:mailing"}, "spaces"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_begin_is_one_line_and_exit_code_2(shop: SweepShop, what: str) -> None:
    words, settings, named = REFUSED[what]
    done = typed("sweep", *words.split(), folder=shop.folder, environment=settings)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done
    assert named in done.stderr


def test_it_sweeps_at_every_interval_until_it_is_told_to_stop(shop: SweepShop) -> None:
    shop.stuck("messages", 1)
    env = {"RETRY_JOB_INTERVAL_SECONDS": "1", "HEADWAY_SERVICES": "shop:parsing"}
    process = shop.started("sweep", "--json", env=env)
    try:
        first = json.loads(process.stdout.readline())
        assert first[1]["requeued"] == 1
        shop.put("messages", "more", status="failed", attemptCount=1, lastAttemptTime=LAST_YEAR)
        for _ in range(20):
            if json.loads(process.stdout.readline())[1]["requeued"]:
                break
        else:
            pytest.fail("it never came again")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()
    assert "sweep/leader" not in shop.query("select name from headway_leases")


def test_a_worker_can_sweep_when_it_starts(shop: SweepShop) -> None:
    shop.put("archives", "a", status="pending", source="mail")
    process = shop.started("run", "shop:parsing", "--requeue-at-start", env={})
    try:
        deadline = time.monotonic() + 60
        while shop.status("archives")["a"][0] != "processed":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()
    assert shop.status("archives") == {"a": ("processed", 1)}
