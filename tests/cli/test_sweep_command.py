"""`headway sweep` on a real file, through its front door."""

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headway.apps.cli.refusals import UnavailableError, said_in_one_line
from headway.apps.cli.stopping import nothing_begun
from tests.cli.shops import ShopFile
from tests.commands import app

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
OVER = "they are over the limit of one run, and come in later ones"
LAST_YEAR = "2020-01-01T00:00:00Z"


class SweepShop(ShopFile):
    """A file with stuck documents, and a module with services."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.module = f"shop_{folder.name.replace('-', '_')}"
        (folder / f"{self.module}.py").write_text(MODULE)
        self.work()  # a service was started, so the file is there

    def stuck(self, collection: str, count: int) -> None:
        """Write documents that failed last year."""
        given = {"status": "failed", "attemptCount": 1, "lastAttemptTime": LAST_YEAR}
        ids = [f"{collection[0]}{number:04}" for number in range(count)]
        with sqlite3.connect(self.path) as file:
            file.executemany(
                "insert into headway_documents (collection, id, body) values (?, ?, ?)",
                [(collection, one, json.dumps({"_id": one, **given})) for one in ids],
            )
        file.close()

    def sweep(self, *words: str) -> Result:
        """Run the command in this process."""
        sweep = ["sweep", f"{self.module}:parsing", "--bus", self.url, *words]
        return CliRunner().invoke(app, sweep, catch_exceptions=False)

    def started(self, *words: str, **more: Any) -> "subprocess.Popen[str]":
        """Start the command as a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "headway.apps.cli", "sweep", *words],
            env={"PATH": "/usr/bin:/bin", "COLUMNS": "100", "HOME": "/", **more.pop("env", {})},
            cwd=self.folder,
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
        )

    def ended(self, *words: str, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        process = self.started(*words, env=env or {})
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def queued(self) -> list[str]:
        with sqlite3.connect(self.path) as file:
            found = file.execute("select operation from headway_items").fetchall()
        file.close()
        # Without the moment of the claim, which nobody knows beforehand.
        return sorted(re.sub(r"^(sweep-1)@\S+?Z:", r"\1:", operation) for (operation,) in found)

    def status(self, collection: str) -> dict[str, tuple[Any, Any]]:
        return {
            each["_id"]: (each.get("status"), each.get("attemptCount"))
            for each in self.documents(collection)
        }


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SweepShop]:
    shop = SweepShop(tmp_path)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield shop
    sys.path[:] = path
    sys.modules.pop(shop.module, None)


def test_one_sweep_sends_what_is_due_and_says_so(shop: SweepShop) -> None:
    shop.stuck("messages", 2)
    shop.put("messages", "spent", status="failed", attemptCount=3, lastAttemptTime=LAST_YEAR)
    now = datetime.now(UTC).isoformat()
    shop.put("messages", "waits", status="failed", attemptCount=2, lastAttemptTime=now)
    shop.put("archives", "a", status="pending", source="mail")
    done = shop.sweep("--once")
    assert done.exit_code == 0
    heading, _, archives, messages = done.stdout.splitlines()
    assert re.split(r"\s{2,}", heading.strip()) == [
        "collection", "stuck", "requeued", "backoff", "left alone", "given up", "errors",
    ]  # fmt: skip
    assert archives.split() == ["archives", "0", "1", "0", "0", "0", "0"]
    assert messages.split() == ["messages", "1", "2", "1", "0", "1", "0"]
    assert shop.queued() == [
        "sweep-1:archives:a",
        "sweep-1:messages:m0000",
        "sweep-1:messages:m0001",
    ]
    assert shop.status("messages")["spent"] == ("failed_max_retries", 3)
    assert "Sweep ended in" in done.stderr
    assert "Document spent of messages has had all its attempts" in done.stderr


def test_for_machines_each_run_is_a_list(shop: SweepShop) -> None:
    shop.stuck("messages", 3)
    found = json.loads(shop.sweep("--once", "--json", "--limit", "2").stdout)
    assert found[1] == {
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
    assert found[0]["collection"] == "archives"


def test_only_one_collection(shop: SweepShop) -> None:
    shop.stuck("messages", 1)
    shop.put("archives", "a", status="pending", source="mail")
    found = json.loads(shop.sweep("--once", "--json", "--collection", "archives").stdout)
    assert [one["collection"] for one in found] == ["archives"]
    assert shop.queued() == ["sweep-1:archives:a"]


def test_a_run_with_an_error_exits_with_1_and_says_which(shop: SweepShop) -> None:
    shop.put("archives", "bad", status="pending")
    shop.stuck("messages", 1)
    done = shop.sweep("--once")
    assert done.exit_code == 1
    assert "1 KeyError" in done.stdout
    assert "No ArchiveIngested that its handler accepts can be made of 1 document " in done.stderr
    command = ("documents", "archive", "archives", "bad", "--stuck")
    assert f"headway {' '.join(command)}" in " ".join(done.stderr.split())
    assert shop.queued() == ["sweep-1:messages:m0000"]
    assert shop.status("archives") == {"bad": ("pending", None)}
    assert shop(*command).exit_code == 0
    assert shop.sweep("--once").exit_code == 0


def test_what_is_only_new_is_not_called_stuck(shop: SweepShop) -> None:
    shop.put("messages", "new", status="pending", createdAt=datetime.now(UTC).isoformat())
    soon = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    shop.put("messages", "later", status="failed", attemptCount=1, retryAt=soon)
    assert "; 1 is stuck" in shop.sweep("--dry-run", "--collection", "messages").stdout
    table = shop.sweep("--once", "--collection", "messages").stdout.splitlines()
    assert table[-1].split() == ["messages", "1", "0", "0", "2", "0", "0"]


def test_what_a_worker_died_over_is_stuck_wherever_it_is_counted(shop: SweepShop) -> None:
    def ago(minutes: int) -> str:
        return (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()

    lease = {"leaseToken": "dead", "leaseUntil": ago(1)}
    tried = {"status": "pending", "attemptCount": 1, "source": "mail"}
    shop.put("archives", "waits", **tried, **lease, lastAttemptTime=ago(2))
    held = {"leaseToken": "alive", "leaseUntil": ago(-1), "lastAttemptTime": ago(2)}
    shop.put("archives", "at work", **tried, **held)
    only = ("--collection", "archives", "--json")
    (seen,) = json.loads(shop.sweep("--dry-run", *only).stdout)
    assert (seen["stuck"], seen["requeue"]["count"]) == (1, 0)
    (swept,) = json.loads(shop.sweep("--once", *only).stdout)
    assert (swept["stuck"], swept["skipped"]) == (1, {"backoff": 1})
    services = ("--service", f"{shop.module}:parsing")
    listed = shop("documents", "stuck", "archives", *services).stdout
    assert "Stuck, the oldest first (1)" in listed


def test_what_keeps_a_run_from_beginning_is_said_to_machines_too(
    shop: SweepShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.stuck("messages", 1)
    monkeypatch.setenv("HEADWAY_BUS", "amqp://me:secret@127.0.0.1:1/shop")
    monkeypatch.setenv("HEADWAY_STORE", shop.url)
    monkeypatch.setenv("COLUMNS", "120")
    command = ["sweep", f"{shop.module}:parsing", "--once"]
    done = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    assert done.exit_code == 3
    for one in json.loads(done.stdout):
        (kind,) = one["errors"]
        assert one["errors"][kind] == 1
        assert one["broken_by"].startswith(f"{kind}: ")
        assert "127.0.0.1" in one["broken_by"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert [line.rpartition("  ")[2] for line in done.stdout.splitlines()[2:4]] == [f"1 {kind}"] * 2
    assert f"no collection could be swept: {kind}: " in done.stderr


def test_a_collection_that_looks_mistyped_is_warned_of(shop: SweepShop) -> None:
    warned = "There is no document in messages, which is to be swept: did you mean message?"
    shop.put("archives", "a", status="processed")
    shop.put("letters", "l", status="processed")
    code, _, said = shop.ended(f"{shop.module}:parsing", "--once")
    assert (code, "did you mean" in said) == (0, False)
    shop.put("message", "m", status="pending")
    shop.put("archive", "a", status="pending")  # and there are archives too
    code, _, said = shop.ended(f"{shop.module}:parsing", "--once")
    assert (code, said.count(warned)) == (0, 1)
    assert "archives, which" not in said
    seen = shop.sweep("--dry-run").stdout.splitlines()
    assert [line for line in seen if "did you mean" in line] == [
        "  there is no document in it at all: did you mean message?"
    ]


def test_ctrl_c_before_it_has_begun_says_so(
    shop: SweepShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    shop.stuck("messages", 1)
    for place in ("apps.cli.sweeping.load_services", "assembly.sweeping.open_engine"):
        with monkeypatch.context() as here:
            here.setattr(f"headway.{place}", interrupted)
            done = shop.sweep("--once")
        assert (done.exit_code, done.stderr) == (130, "stopped: nothing was begun\n")
    with pytest.raises(SystemExit) as ended, nothing_begun():
        raise KeyboardInterrupt
    assert ended.value.code == 130


def test_a_dry_run_changes_nothing_and_says_what_would_happen(shop: SweepShop) -> None:
    shop.stuck("messages", 7)
    shop.put("messages", "spent", status="failed", attemptCount=3, lastAttemptTime=LAST_YEAR)
    soon = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    shop.put("messages", "later", status="failed", attemptCount=1, retryAt=soon)
    shop.put("archives", "bad", status="pending")
    before = shop.path.read_bytes()
    done = shop.sweep("--dry-run", "--limit", "6")
    assert done.exit_code == 0
    assert shop.path.read_bytes() == before
    assert done.stdout.splitlines() == [
        "archives: 0 documents would be requeued, 0 given up; 1 is stuck",
        "       1 left alone, because no event can be made of them (KeyError: 'source'): bad",
        "messages: 6 documents would be requeued, 1 given up; 9 are stuck",
        "       6 requeue: m0006, m0005, m0004, m0003, m0002, ...",
        "       1 give up: spent",
        f"       1 left alone, because {OVER}: m0000",
        "       1 left alone, because a person said when: later",
        "  the limit of one run is 6 now: see RETRY_JOB_LIMIT",
    ]
    found = json.loads(shop.sweep("--dry-run", "--json", "--collection", "messages").stdout)
    assert found[0]["requeue"] == {"count": 7, "first": [f"m000{n}" for n in (6, 5, 4, 3, 2)]}
    assert found[0]["give_up"] == {"count": 1, "first": ["spent"]}
    assert found[0]["skipped"]["scheduled"] == {"count": 1, "first": ["later"]}
    assert shop.path.read_bytes() == before
    assert shop.queued() == []


def test_ids_from_outside_do_not_speak_to_the_terminal(shop: SweepShop) -> None:
    shop.put("messages", "\x1b[2Jgone\u202e", status="failed", attemptCount=1)
    for words in (("--dry-run",), ("--dry-run", "--json"), ("--once",), ("--once", "--json")):
        said = shop.sweep(*words).stdout
        assert [one for one in said if not one.isprintable() and one != "\n"] == []


REFUSED: dict[str, tuple[list[str], dict[str, str], str]] = {
    "no services": (["--once"], {}, "name services as MODULE:SERVICE, or set HEADWAY_SERVICES"),
    "nothing to sweep": (["{module}:mailing"], {}, "there is nothing to sweep"),
    "a collection that is none": (
        ["{module}:parsing", "--collection", "mesages"],
        {},
        "did you mean 'messages'?",
    ),
    "a setting": (
        ["{module}:parsing"],
        {"RETRY_JOB_INTERVAL_SECONDS": "soon"},
        "RETRY_JOB_INTERVAL_SECONDS='soon' is not accepted",
    ),
    "a setting that is misspelt": (
        ["{module}:parsing"],
        {"RETRY_JOB_INTERVALL": "9"},
        "did you mean RETRY_JOB_INTERVAL_SECONDS?",
    ),
    "a file that is not there": (
        ["{module}:parsing", "--bus", "sqlite:///nowhere.db"],
        {},
        "there is no such file",
    ),
    "commas": (
        [],
        {"HEADWAY_SERVICES": "{module}:parsing,{module}:mailing"},
        "HEADWAY_SERVICES='{module}:parsing,{module}:mailing' is not accepted: put spaces",
    ),
}


def test_a_store_that_is_away_is_named_and_not_the_bus(
    shop: SweepShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_BUS", "amqp://me:secret@127.0.0.1:1/shop")
    monkeypatch.setenv("HEADWAY_STORE", "postgresql://me:secret@127.0.0.1:1/shop")
    store = f"HEADWAY_STORE={'postgresql://me:***@127.0.0.1:1/shop'!r} cannot be used: "
    for words in (("sweep", f"{shop.module}:parsing", "--dry-run"), ("documents", "stuck", "x")):
        with pytest.raises(UnavailableError) as refused:
            CliRunner().invoke(app, words, catch_exceptions=False)
        assert str(refused.value).startswith(store)


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_begin_is_one_line_and_exit_code_2(
    shop: SweepShop, what: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    words, settings, cure = REFUSED[what]
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    given = [word.replace("{module}", shop.module) for word in words]
    with pytest.raises(SystemExit) as end, said_in_one_line():
        CliRunner().invoke(app, ["sweep", *given], catch_exceptions=False)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("headway: ")
    assert cure in said
    assert len(said.splitlines()) == 1


def test_in_a_container_the_services_come_from_the_environment(shop: SweepShop) -> None:
    shop.stuck("messages", 2)
    code, out, err = shop.ended("--once", env={"HEADWAY_SERVICES": f"{shop.module}:parsing"})
    assert (code, "messages" in out) == (0, True), err
    assert shop.queued() == ["sweep-1:messages:m0000", "sweep-1:messages:m0001"]
    last = json.loads(err.splitlines()[-1])
    assert (last["status"], last["requeued"]) == ("success", 2)


def test_it_sweeps_at_every_interval_until_it_is_told_to_stop(shop: SweepShop) -> None:
    shop.stuck("messages", 1)
    process = shop.started(
        shop.module + ":parsing", "--json", env={"RETRY_JOB_INTERVAL_SECONDS": "1"}
    )
    try:
        assert process.stdout is not None
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
        _, said = process.communicate()
    assert "Sweeping archives, messages every 1s" in said
    assert "SIGTERM received: stopping after the documents that are being sent" in said
    assert "Sweeping has ended, as told" in said
    with sqlite3.connect(shop.path) as file:
        held = file.execute("select name from headway_leases").fetchall()
    file.close()
    assert ("sweep/leader",) not in held


def test_a_person_at_a_terminal_sees_a_bar_and_can_stop_it(shop: SweepShop) -> None:
    shop.stuck("messages", 2_400)
    control, terminal = pty.openpty()
    process = shop.started(
        shop.module + ":parsing",
        "--once",
        env={
            "RETRY_JOB_RATE_PER_SECOND": "600",
            "RETRY_JOB_CAP_AFTER_DOWNTIME": "0",
            "TERM": "xterm",
        },
        stdout=terminal,
        stderr=terminal,
        stdin=terminal,
    )
    os.close(terminal)
    said = ""
    try:
        deadline = time.monotonic() + 60
        while "1000/2400" not in said:
            assert time.monotonic() < deadline, said
            said += os.read(control, 4096).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        while True:
            try:
                more = os.read(control, 4096).decode(errors="replace")
            except OSError:
                break
            if not more:
                break
            said += more
        assert process.wait(timeout=30) == 130, said
    finally:
        process.kill()
        process.wait()
        os.close(control)
    assert "stopped: what is not in the table is as it was" in said
    sent = len(shop.queued())
    assert 1_000 <= sent <= 2_400
    attempts = [count for _, count in shop.status("messages").values()]
    assert attempts.count(2) == sent


def test_a_worker_can_sweep_when_it_starts(shop: SweepShop) -> None:
    shop.put("archives", "a", status="pending", source="mail")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "headway.apps.cli",
            "run",
            shop.module + ":parsing",
            "--requeue-at-start",
        ],
        env={"PATH": "/usr/bin:/bin", "HOME": "/"},
        cwd=shop.folder,
        stderr=subprocess.PIPE,
        text=True,
    )
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
