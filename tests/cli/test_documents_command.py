"""`headway documents` on a real file, through its front door."""

import asyncio
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headway import ConfigurationError
from headway.apps.cli.documents_deciding import Order, _sweep
from headway.operations import Decision
from headway.testing.engines import open_engine
from headway.testing.ports import instant
from tests.cli.shops import NASTY, ShopFile
from tests.commands import app

COMMAND = (sys.executable, "-m", "headway.apps.cli", "documents")
GONE = "failed_max_retries"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SERVICES = """
from headway import Lifecycle, Service

embedding = Service(
    "embedding", lifecycles=[Lifecycle("chunks", flag="embedding_generated", max_attempts=5)]
)
"""

REBUILDING = """
from headway import Service

parsing = Service("parsing")

@parsing.on("ArchiveIngested", documents=("archives", "archive_ids"), rebuild=lambda d: {
    "archive_ids": [d["_id"]], "source": d["source"],
})
async def parse(event, work): ...
"""


class Office(ShopFile):
    """A file with documents in it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.work()  # which makes the file

    def ago(self, age: timedelta) -> str:
        return instant(datetime.now(UTC) - age)

    def give_up(self, *ids: str, collection: str = "messages", error: str = "KeyError") -> None:
        body = {
            "status": GONE,
            "attemptCount": 3,
            "lastAttemptTime": self.ago(2 * HOUR),
            "lastOperation": "sweep-2:x",
            "sweepGeneration": 2,
            "lastError": {"type": error, "message": "no subject", "at": self.ago(2 * HOUR)},
            "givenUpAt": self.ago(HOUR),
        }
        with sqlite3.connect(self.path) as file:
            file.executemany(
                "insert or replace into headway_documents (collection, id, body) values (?, ?, ?)",
                [(collection, one, json.dumps({"_id": one, **body})) for one in ids],
            )
        file.close()

    def get(self, one: str, collection: str = "messages") -> Any:
        (found,) = [each for each in self.documents(collection) if each["_id"] == one]
        return found

    def ids(self, collection: str = "messages") -> list[str]:
        return sorted(each["_id"] for each in self.documents(collection))

    def json(self, *words: str) -> Any:
        done = self("documents", *words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C reaches what the test starts, even if the tests run where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def fill(office: Office) -> None:
    """Put one document of every kind."""
    office.put("messages", "lost", status="pending", attemptCount=0, lastAttemptTime=None)
    office.put("messages", "new", status="pending", createdAt=office.ago(timedelta(seconds=5)))
    office.put(
        "messages",
        "dead",
        status="pending",
        attemptCount=1,
        lastAttemptTime=office.ago(3 * DAY),
    )
    office.put(
        "messages",
        "soon",
        status="failed",
        attemptCount=2,
        lastAttemptTime=office.ago(HOUR / 60),
        lastError={"type": "TimeoutError", "message": "30 s"},
    )
    office.put("messages", "done", status="processed")
    office.give_up("gone")


VERSIONED = """
from headway import Service

chunking = Service("chunking", version="2")

@chunking.on("JSONParsed", documents=("messages", "message_doc_ids"))
async def chunk(event, work): ...
"""


def fail_permanently(office: Office, one: str, rule: str, version: str) -> None:
    office.put(
        "messages",
        one,
        status="failed",
        attemptCount=1,
        lastAttemptTime=office.ago(DAY),
        lastError={"type": "DeclinedError", "message": "no funds"},
        permanentFailure={"rule": rule, "version": version},
    )


async def run_worker(url: str, version: str) -> None:
    engine = open_engine(url)
    await engine.bus.announce("chunking", version, ["chunking.json.parsed"], timedelta(minutes=10))
    await engine.close()


def test_what_failed_permanently_is_shown_apart_and_can_be_retried(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_permanently(office, "card", "shop.declined", "1")
    fail_permanently(office, "bug", "python.programming", "1")
    done = office("documents", "stuck", "messages")
    assert "Failed permanently (2)" in done.stdout.splitlines()
    assert "     2 failed permanently: 2 DeclinedError" in done.stdout
    assert "headway documents retry messages --error TYPE --at now" in done.stdout
    assert "Stuck" not in done.stdout

    (office.folder / "versioned.py").write_text(VERSIONED)
    monkeypatch.syspath_prepend(str(office.folder))
    named = ("--service", "versioned:chunking")
    lines = office("documents", "stuck", "messages", *named).stdout.splitlines()
    assert "Failed permanently (2)" in lines  # no worker runs another version
    asyncio.run(run_worker(office.url, "2"))
    lines = office("documents", "stuck", "messages", *named).stdout.splitlines()
    assert "Stuck, the oldest first (1)" in lines  # another version has one attempt
    assert "     1 stuck: the next sweep requeues them" in lines
    (card,) = [line for line in lines if line.startswith("card ")]
    assert card.split() == [
        "card", "1", "of", "3", "24", "h", "ago", "shop.declined", "1", "DeclinedError:", "no",
        "funds",
    ]  # fmt: skip
    found = {each["_id"]: each for each in office.json("stuck", "messages", *named)}
    assert found["card"]["permanentFailure"] == {"rule": "shop.declined", "version": "1"}
    assert (found["card"]["sweep"], found["card"]["why"]) == ("leave", "failed permanently")
    assert found["bug"]["sweep"] == "requeue"

    dry = office("documents", "retry", "messages", "--all", "--at", "now", "--dry-run")
    assert "failed permanently" in dry.stdout
    done = office("documents", "retry", "messages", "card", "--at", "now")
    assert (done.exit_code, office.get("card")["permanentFailure"]) == (0, None)
    lines = office("documents", "stuck", "messages", *named).stdout.splitlines()
    assert "Stuck, the oldest first (2)" in lines


def test_stuck_shows_what_a_sweep_would_do_and_a_line_by_reason(office: Office) -> None:
    fill(office)
    done = office("documents", "stuck", "messages")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "Stuck, the oldest first (3)"
    assert [line.split("  ")[0] for line in lines[3:6]] == ["lost", "dead", "soon"]
    assert "No service was named, so it is not known whether anybody sweeps messages" in done.stderr
    assert "requeue it now" in lines[3]
    assert "1 of 3" in lines[4]
    assert "3 d ago" in lines[4]
    assert "wait 9 min: backoff" in lines[5] or "wait 8 min: backoff" in lines[5]
    assert "Given up (1)" in lines
    assert "KeyError: no subject" in done.stdout
    due = "due by the usual rule; a sweep of their service would requeue them"
    assert f"     2 stuck: {due}" in lines
    assert "     1 stuck: they wait for their backoff" in lines
    assert "     1 given up: 1 KeyError" in lines
    assert "     1 new: never attempted, and too young to be called stuck" in lines
    assert "headway documents reset messages --all" in done.stdout
    assert "done" not in done.stdout.split()


def test_stuck_as_json_has_the_documented_fields(office: Office) -> None:
    fill(office)
    found = {each["_id"]: each for each in office.json("stuck", "messages")}
    assert set(found) == {"lost", "dead", "soon", "gone"}
    soon = found["soon"]
    assert (soon["status"], soon["attemptCount"], soon["maxAttempts"]) == ("failed", 2, 3)
    assert (soon["sweep"], soon["why"]) == ("leave", "backoff")
    assert soon["due"] > soon["lastAttemptTime"]
    assert soon["lastError"] == {"type": "TimeoutError", "message": "30 s"}
    assert (found["gone"]["why"], found["gone"]["due"]) == ("given up", None)
    assert found["dead"]["sweep"] == "requeue"


def test_settings_and_declared_lifecycles_decide_what_is_stuck(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    (office.folder / "declared.py").write_text(SERVICES)
    monkeypatch.chdir(office.folder)
    monkeypatch.syspath_prepend(office.folder)
    monkeypatch.delitem(sys.modules, "declared", raising=False)
    at = office.ago(2 * HOUR)
    office.put(
        "chunks",
        "c",
        attemptCount=3,
        embedding_generated=False,
        lastFailedAt=at,
        lastAttemptTime=at,
    )
    office.put("chunks", "ok", attemptCount=1, embedding_generated=True, lastAttemptTime=at)
    office.put("threads", "t", status="pending", attemptCount=1, lastAttemptTime=at)

    def ask(*words: str) -> list[tuple[str, int]]:
        return [(each["_id"], each["maxAttempts"]) for each in office.json("stuck", *words)]

    assert ask("chunks") == []  # by their status, a worker may have them
    assert ask("chunks", "--service", "declared:embedding") == [("c", 5)]
    refused = office("documents", "stuck", "chnks", "--service", "declared:embedding")
    assert "did you mean chunks?" in str(refused.exception)
    assert ask("threads") == []
    monkeypatch.setenv("RETRY_JOB_STUCK_THRESHOLD_HOURS", "1")
    assert ask("threads") == [("t", 5)]
    monkeypatch.setenv("HEADWAY_SERVICES", "declared")
    assert ask("chunks") == [("c", 5)]
    assert ask("threads") == [("t", 5)]  # of which these services say nothing


def test_a_collection_that_is_not_there_is_said(office: Office) -> None:
    done = office("documents", "stuck", "mesages")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "There is no document in mesages, nor in any other collection.\n"
    office.put("messages", "done", status="processed")
    office.put("chunks", "done", status="processed")
    meant = "There is no document in mesages: did you mean messages? There are: chunks, messages\n"
    done = office("documents", "stuck", "mesages")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", meant)
    done = office("documents", "stuck", "mesages", "--json")
    assert (done.exit_code, json.loads(done.stdout), done.stderr) == (1, [], meant)
    for words in (["reset"], ["retry", "--at", "1h"], ["purge", "--yes"], ["archive"]):
        done = office("documents", words[0], "mesages", "--all", *words[1:])
        assert (done.exit_code, done.stdout) == (1, meant)
    done = office("documents", "reset", "mesages", "m1")
    assert done.stdout == f"  m1 is not in mesages\n{meant}"
    office.give_up("gone")
    assert office("documents", "archive", "messages", "--all").exit_code == 0
    done = office("documents", "restore", "mesages", "--all")
    assert (done.exit_code, done.stdout) == (
        1,
        "There is no document in mesages_dead_letter: did you mean messages? There are: messages\n",
    )
    done = office("documents", "export", "mesages")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "did you mean messages?" in done.stderr
    done = office("documents", "stuck", "messages")
    assert done.stdout == "Nothing in messages is stuck, and nothing was given up.\n"


def test_to_look_makes_nothing(office: Office) -> None:
    fill(office)

    def schema() -> list[Any]:
        with sqlite3.connect(office.path) as file:
            found = file.execute("select type, name, sql from sqlite_master").fetchall()
        file.close()
        return sorted(found)

    before = schema()
    for collection in ("messages", "mesages"):
        office("documents", "stuck", collection)
        office("documents", "export", collection)
    assert schema() == before


def test_what_nobody_sweeps_is_not_called_due(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    (office.folder / "declared.py").write_text(SERVICES)
    monkeypatch.syspath_prepend(office.folder)
    monkeypatch.delitem(sys.modules, "declared", raising=False)
    monkeypatch.setenv("HEADWAY_SERVICES", "declared")
    office.put("invoices", "i", status="pending")
    done = office("documents", "stuck", "invoices")
    assert "leave it: nobody sweeps it" in done.stdout
    assert "     1 stuck: nobody sweeps them: no handler of these services has" in done.stdout
    (found,) = office.json("stuck", "invoices")
    assert (found["sweep"], found["why"]) == ("leave", "nobody sweeps it")
    monkeypatch.delenv("HEADWAY_SERVICES")
    (found,) = office.json("stuck", "invoices")
    assert found["sweep"] == "requeue", "who sweeps it is not known here"


def test_without_its_service_a_collection_with_a_flag_is_warned_of(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    (office.folder / "declared.py").write_text(SERVICES)
    monkeypatch.syspath_prepend(office.folder)
    monkeypatch.delitem(sys.modules, "declared", raising=False)
    office.put("chunks", "ok", embedding_generated=True)
    office.put("chunks", "c", embedding_generated=False, lastAttemptTime=office.ago(2 * HOUR))
    done = office("documents", "stuck", "chunks")
    assert "have no status but a field embedding_generated" in done.stderr
    assert office("documents", "stuck", "chunks", "--service", "declared:embedding").stderr == ""
    office.put("messages", "m", urgent=True, status="pending")
    assert "have no status" not in office("documents", "stuck", "messages").stderr


def test_statuses_of_others_are_counted(office: Office) -> None:
    fill(office)
    for number in range(3):
        office.put("messages", f"odd{number}", status=("FAILED", "weird", 7)[number])
    done = office("documents", "stuck", "messages")
    assert (
        "     3 foreign: their status is not one of ours, or nobody can read them, so nobody "
        "sweeps them: headway documents export messages --status foreign"
    ) in done.stdout.splitlines()


def test_a_reset_shows_first_and_then_lets_them_begin_anew(office: Office) -> None:
    office.give_up("a", "b")
    office.give_up("c", error="OSError")
    dry = office("documents", "reset", "messages", "--error", "KeyError", "--dry-run")
    assert dry.stdout.splitlines()[0] == "2 of 2 documents of messages would be reset to pending"
    assert dry.stdout.splitlines()[-1] == "Nothing was changed: this was a dry run."
    assert {each["status"] for each in office.documents("messages")} == {GONE}
    done = office("documents", "reset", "messages", "--error", "KeyError", "--at", "2h")
    assert done.exit_code == 0
    assert "2 of 2 documents of messages reset to pending" in done.stdout
    found = office.get("a")
    assert (found["status"], found["attemptCount"], found["lastAttemptTime"]) == (
        "pending",
        0,
        None,
    )
    assert (found["lastOperation"], found["sweepGeneration"]) == (None, 2)
    ahead = datetime.fromisoformat(found["retryAt"]) - datetime.now(UTC)
    assert timedelta(minutes=115) < ahead <= 2 * HOUR
    assert office.get("c")["status"] == GONE
    again = office("documents", "reset", "messages", "--error", "KeyError")
    assert "There is no such document in messages: status=" in again.stdout


def test_what_is_refused_or_not_there_is_named_and_the_exit_code_is_1(office: Office) -> None:
    fill(office)
    done = office("documents", "reset", "messages", "gone", "dead", "done", "nobody")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "1 of 4 documents of messages reset to pending"
    assert lines[1].startswith("  dead was refused: it is pending")
    assert lines[2].startswith("  done was refused: it is processed")
    assert lines[3] == "  nobody is not in messages"


def test_a_change_of_nothing_in_particular_is_refused(office: Office) -> None:
    office.give_up("a")
    for verb in ("reset", "purge", "archive", "restore"):
        done = office("documents", verb, "messages")
        assert isinstance(done.exception, ConfigurationError)
        assert "not said which documents are meant" in str(done.exception)
    assert office.get("a")["status"] == GONE


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("reset", "messages", "a", "--at", "soon"), "--at 'soon' is not accepted"),
        (("reset", "messages", "--status", "faild"), "--status 'faild' is not accepted"),
        (("retry", "messages", "a", "--at", "2000-01-01"), "that was before now"),
        (("stuck", "messages", "--service", "no_such:thing"), "no module 'no_such'"),
    ],
)
def test_what_cannot_be_read_is_refused(office: Office, words: tuple[str, ...], why: str) -> None:
    office.give_up("a")
    done = office("documents", *words)
    assert isinstance(done.exception, ConfigurationError)
    assert why in str(done.exception)
    assert (done.stdout, office.get("a")["status"]) == ("", GONE)


def test_a_retry_schedules_and_refuses_what_has_no_attempts_left(office: Office) -> None:
    fill(office)
    done = office("documents", "retry", "messages", "soon", "gone", "--at", "now")
    assert done.exit_code == 1
    assert "1 of 2 documents of messages scheduled" in done.stdout
    assert "of them later" not in done.stdout
    assert "gone was refused: it has no attempts left: reset it" in done.stdout
    (soon,) = [each for each in office.json("stuck", "messages") if each["_id"] == "soon"]
    assert (soon["sweep"], soon["attemptCount"]) == ("requeue", 2)


def test_an_export_is_json_lines_with_every_field(office: Office, tmp_path: Path) -> None:
    fill(office)
    printed = office("documents", "export", "messages", "--status", GONE, "--status", "failed")
    found = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [each["_id"] for each in found] == ["gone", "soon"]
    assert found[0] == office.get("gone")
    target = tmp_path / "all.jsonl"
    done = office("documents", "export", "messages", "--output", str(target))
    assert done.exit_code == 0
    assert [json.loads(line)["_id"] for line in target.read_text().splitlines()] == office.ids()
    refused = office.typed("documents", "export", "messages", "--output", "all.jsonl")
    assert (refused.returncode, "--force" in refused.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir() if "jsonl" in path.name] == [target.name]


def test_a_purge_asks_and_without_a_terminal_it_refuses(office: Office) -> None:
    office.give_up("a", "b")
    done = office.typed("documents", "purge", "messages", "--all")
    assert done.returncode == 2
    assert "2 documents of messages would be removed for good" in done.stderr
    assert "--yes" in done.stderr
    assert office.ids() == ["a", "b"]
    assert office.json("history") == []


@pytest.mark.parametrize("yes", ["--yes", "--confirm"])
def test_a_purge_removes_what_was_given_up_and_nothing_else(office: Office, yes: str) -> None:
    fill(office)
    there = office.ids()
    done = office("documents", "purge", "messages", "dead", "soon", yes)
    assert (done.exit_code, office.ids()) == (1, there)
    assert done.stdout.count("it was not given up: sweeps try it again by themselves") == 2
    done = office("documents", "purge", "messages", "--all", yes)
    assert done.exit_code == 0
    assert "1 of 1 document of messages removed for good" in done.stdout
    assert office.ids() == [one for one in there if one != "gone"]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_at_the_question_ends_it_at_once(office: Office) -> None:
    office.give_up(*(f"mail-{n}" for n in range(600)))
    outer, inner = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "purge", "messages", "--all"],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=office.folder,
    ) as process:
        os.close(inner)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(outer, 1000)
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=30)
    said += os.read(outer, 10_000)
    os.close(outer)
    assert (code, len(office.ids())) == (130, 600)
    assert b"stopped: nothing was changed" in said
    assert b"removed for good, and perhaps" not in said
    assert b"Traceback" not in said
    assert office.json("history") == []


@pytest.mark.parametrize(("answer", "left"), [(b"y\n", 0), (b"n\n", 2), (b"\x04", 2)])
def test_a_person_at_a_terminal_sees_what_is_meant_and_is_asked(
    office: Office, answer: bytes, left: int
) -> None:
    office.give_up("mail-a", "mail-b")
    outer, inner = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "purge", "messages", "--all"],
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=office.folder,
    ) as process:
        os.close(inner)
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(outer, 1000)
        os.write(outer, answer)
        code = process.wait(timeout=60)
    os.close(outer)
    assert b"mail-a" in asked
    assert b"KeyError" in asked
    assert b"Remove 2 documents of messages for good?" in asked
    assert (code, len(office.ids())) == (0 if left == 0 else 1, left)
    assert len(office.json("history")) == (left == 0)


def test_what_is_archived_can_be_brought_back(office: Office) -> None:
    office.give_up("a", "b")
    done = office("documents", "archive", "messages", "a")
    assert "1 of 1 document of messages moved to messages_dead_letter" in done.stdout
    assert (office.ids(), office.ids("messages_dead_letter")) == (["b"], ["a"])
    done = office("documents", "restore", "messages", "--all", "--dry-run")
    assert "would be brought back from messages_dead_letter" in done.stdout
    done = office("documents", "restore", "messages", "--all")
    assert "1 of 1 document of messages brought back from messages_dead_letter" in done.stdout
    assert office.ids("messages_dead_letter") == []
    assert office.get("a")["status"] == "pending"
    assert (office.get("a")["attemptCount"], office.get("b")["status"]) == (0, GONE)


def test_a_long_selection_does_not_fold_the_history(office: Office) -> None:
    ids = [f"mail-{n:04}" for n in range(90)]
    office.give_up(*ids, "more")
    office("documents", "reset", "messages", *ids)
    office("documents", "archive", "messages", "--all")
    lines = office.typed("documents", "history").stdout.splitlines()
    assert [line for line in lines if line.startswith("  ") and " of messages: " in line] == [
        "  archive of messages: 1 of 1",
        "  reset of messages: 90 of 90",
    ]
    (chosen,) = [line for line in lines if "mail-0003" in line]
    assert chosen.startswith("  ids=mail-0000,mail-0001,")


@pytest.fixture
def rebuilding(office: Office, monkeypatch: pytest.MonkeyPatch) -> Office:
    """Let a service that sweeps archives be found as declared:parsing."""
    (office.folder / "declared.py").write_text(REBUILDING)
    monkeypatch.syspath_prepend(office.folder)
    monkeypatch.delitem(sys.modules, "declared", raising=False)
    return office


MISTYPED = "RETRY_JOB_MAX_ATTEMPTS_ARCHIVE"


@pytest.mark.parametrize(
    "words",
    [
        ("documents", "stuck", "archives"),
        ("documents", "reset", "archives", "--all", "--dry-run"),
        ("config", "show"),
    ],
)
def test_a_mistyped_number_of_attempts_is_refused_as_a_sweep_does(
    rebuilding: Office, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    rebuilding.put("archives", "a", status="failed", attemptCount=1, source="mail")
    monkeypatch.setenv("HEADWAY_BUS", rebuilding.url)
    monkeypatch.setenv(MISTYPED, "7")
    assert CliRunner().invoke(app, [*words]).exit_code == 0, "nobody knows what there is"
    monkeypatch.setenv("HEADWAY_SERVICES", "declared:parsing")
    done = CliRunner().invoke(app, [*words])
    said = f"{done.exception}\n{done.stderr}"
    assert f"{MISTYPED} is for no collection: did you mean {MISTYPED}S?" in said
    assert "nobody sweeps" not in done.output
    monkeypatch.delenv(MISTYPED)
    monkeypatch.setenv(f"{MISTYPED}S", "7")
    assert CliRunner().invoke(app, [*words]).exit_code == 0


def test_the_command_that_sweeps_what_was_reset_can_be_typed(
    rebuilding: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_BUS", rebuilding.url)

    def reset(*words: str, collection: str = "archives") -> str:
        rebuilding.give_up("a", collection=collection)
        done = CliRunner().invoke(app, ["documents", "reset", collection, "--all", *words])
        return done.stdout.splitlines()[-1]

    ends = "--once --collection archives"
    assert reset().endswith(f"now: headway sweep MODULE:SERVICE {ends}")
    service = ("--service", "declared:parsing")
    assert reset(*service).endswith(f"now: headway sweep declared:parsing {ends}")
    given = reset(*service, "--bus", rebuilding.url)
    assert given.endswith(f"now: headway sweep declared:parsing {ends} --bus {rebuilding.url}")
    monkeypatch.setenv("HEADWAY_SERVICES", "declared")
    assert reset().endswith(f"now: headway sweep {ends}")
    assert reset(collection="orders").startswith("No sweep takes them: no handler of these")
    order = Order(decision=Decision.RESET, collection="archives")
    assert _sweep(order, "amqp://me:s3cret@broker/shop").endswith(f"{ends} --bus URL")


def test_with_a_service_what_the_next_sweep_does_is_said_as_it_is(rebuilding: Office) -> None:
    rebuilding.put("archives", "a", status="failed", attemptCount=1, source="mail")
    done = rebuilding("documents", "stuck", "archives", "--service", "declared:parsing")
    assert "     1 stuck: the next sweep requeues them" in done.stdout
    assert done.stderr == ""
    done = rebuilding("documents", "stuck", "archives")
    assert "the next sweep" not in done.stdout
    assert "say --service MODULE:SERVICE, or set HEADWAY_SERVICES" in done.stderr


def test_a_declared_collection_may_be_empty_unless_it_looks_mistyped(
    rebuilding: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_SERVICES", "declared")
    rebuilding.put("messages", "m", status="processed")
    done = rebuilding("documents", "stuck", "archives")
    assert (done.exit_code, done.stderr) == (0, "")
    rebuilding.put("archive", "a", status="processed")
    done = rebuilding("documents", "stuck", "archives")
    assert done.exit_code == 1
    assert "There is no document in archives: did you mean archive?" in done.stderr


def test_what_was_never_attempted_is_listed_by_when_it_was_made(office: Office) -> None:
    for one, age in {"a": HOUR, "b": 5 * DAY, "c": 2 * DAY}.items():
        office.put("messages", one, status="pending", createdAt=office.ago(age))
    tried = {"attemptCount": 1, "lastAttemptTime": office.ago(3 * DAY)}
    office.put("messages", "tried", status="pending", **tried)
    done = office("documents", "stuck", "messages", "--limit", "3")
    lines = done.stdout.splitlines()
    assert lines[0] == "Stuck, the oldest first (3 of 4)"
    assert [line.split("  ")[0] for line in lines[3:6]] == ["b", "tried", "c"]
    assert "made 5 d ago" in lines[3]


def test_the_history_says_who_did_what(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No document was changed yet." in office("documents", "history").stdout
    office.give_up("a", "b")
    office("documents", "archive", "messages", "a")
    office("documents", "reset", "messages", "--all")
    office("documents", "reset", "messages", "--all", "--dry-run")
    newest, oldest = office.json("history")
    assert (newest["what"], newest["selection"]) == ("reset", f"all status={GONE}")
    assert (oldest["what"], oldest["ids"], oldest["outcome"]) == ("archive", ["a"], "complete")
    assert "@" in newest["who"]
    monkeypatch.setenv("COLUMNS", "140")
    lines = office("documents", "history").stdout.splitlines()
    assert lines[0].split() == ["when", "who", "what", "collection", "documents", "which"]
    assert "1 of 1" in lines[2]
    assert len(office.json("history", "--limit", "1")) == 1


def test_a_change_leaves_a_record_where_nobody_sits_at_a_terminal(office: Office) -> None:
    office.give_up("a")
    done = office.typed("documents", "reset", "messages", "a")
    record = json.loads(done.stderr)
    assert record["logger"] == "headway.operator"
    assert (record["change"], record["collection"], record["documents"]) == ("reset", "messages", 1)
    assert "@" in record["operator"]


def test_nothing_in_a_document_speaks_to_the_terminal(office: Office) -> None:
    office.put(
        "messages",
        NASTY,
        status="failed",
        attemptCount=1,
        lastError={"type": NASTY, "message": NASTY},
    )
    office.give_up(NASTY + "2", error=NASTY)
    for words in (
        ("stuck", "messages"),
        ("stuck", "messages", "--json"),
        ("export", "messages"),
        ("reset", "messages", "--all", "--dry-run"),
        ("purge", "messages", NASTY),
        ("reset", "messages", NASTY + "2"),
        ("history",),
    ):
        said = office("documents", *words).stdout
        assert said
        assert [one for one in said if not one.isprintable() and one != "\n"] == [], words


INTERRUPTED = """
import os, sys
from headway.adapters.sqlite.desk import SqliteDesk
from headway.apps.cli import main

calls, move = 0, SqliteDesk.move

async def interrupted(*args):
    global calls
    calls += 1
    if calls == 3:
        os.kill(os.getpid(), SIGNAL)
    return await move(*args)

SqliteDesk.move = interrupted
sys.argv[1:1] = ["documents", "archive", "messages", "--all"]
main()
"""


def interrupt(office: Office, by: signal.Signals) -> "subprocess.CompletedProcess[str]":
    """Archive 2000 documents, page by page, and be interrupted at the third of four pages."""
    office.give_up(*(f"m{n:04}" for n in range(2_000)))
    return subprocess.run(
        [sys.executable, "-c", INTERRUPTED.replace("SIGNAL", str(int(by)))],
        cwd=office.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def complete(office: Office) -> None:
    """Say the same again, and see that all is done."""
    left = len(office.ids())
    done = office("documents", "archive", "messages", "--all")
    assert f"{left} of {left} documents of messages moved" in done.stdout
    assert (office.ids(), len(office.ids("messages_dead_letter"))) == ([], 2_000)


def test_a_change_that_is_killed_is_seen_and_completed_by_the_next(office: Office) -> None:
    killed = interrupt(office, signal.SIGKILL)
    assert (killed.returncode, len(office.ids())) == (-signal.SIGKILL, 1_000)
    (trace,) = office.json("history")
    assert (trace["outcome"], trace["chosen"], len(trace["ids"])) == ("intended", 2_000, 100)
    said = office("documents", "history").stdout
    assert "? of 2000" in said
    assert "it is going on, or its process was killed" in said
    complete(office)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_says_how_far_it_got_and_is_noted(office: Office) -> None:
    stopped = interrupt(office, signal.SIGINT)
    assert stopped.returncode == 130
    assert "stopped: 1000 of 2000 documents of messages were moved" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert len(office.ids()) in {500, 1_000}  # the third page may have been in hand
    (note,) = office.json("history")
    assert (note["outcome"], note["done"]) == ("stopped", 1_000)
    complete(office)


MEASURED = """
import asyncio, ctypes, tracemalloc, _sqlite3
from headway.testing.engines import open_engine
from headway.adapters.system.chance import CHANCE
from headway.adapters.system.clock import CLOCK
from headway.core.decision import Decision
from headway.core.lifecycle import State
from headway.runtime.documents import StoredDocuments
from headway.runtime.documents_choosing import Choice

most = ctypes.CDLL(getattr(_sqlite3, "__file__", None)).sqlite3_memory_highwater
most.restype, most.argtypes = ctypes.c_int64, [ctypes.c_int]

async def main():
    engine = open_engine()
    documents = StoredDocuments(engine, CLOCK, CHANCE)
    sizes = {"few": FEW, "many": MANY}
    await engine.sweeping.candidates.prepare([documents.rule_of(each) for each in sizes])
    for collection, size in sizes.items():
        tracemalloc.reset_peak()
        most(True)
        assert (await documents.stuck(collection)).stuck == size
        async for _ in documents.export(collection, Choice()):
            pass
        failed = Choice(everything=True, states=[State.FAILED])
        assert (await documents.decide(Decision.RESET, collection, failed)).done == size
        print(tracemalloc.get_traced_memory()[1], most(True))
    await engine.close()

tracemalloc.start()
asyncio.run(main())
"""
FEW, MANY, LONG = 4_500, 7_500, 3_000
"""The few are more than two pages of anything: one that is looked at, and one that is read."""


def test_many_documents_take_no_more_memory_than_few(office: Office) -> None:
    """As Python and SQLite themselves say what they had at most.

    By chance one connection more has filled its cache, of 2 MB: that is less than is allowed.
    """
    body = {"status": "failed", "attemptCount": 1, "text": "x" * LONG}
    rows = [("few", f"m{n:05}") for n in range(FEW)] + [("many", f"m{n:05}") for n in range(MANY)]
    with sqlite3.connect(office.path) as file:
        file.executemany(
            "insert into headway_documents (collection, id, body) values (?, ?, ?)",
            ((collection, one, json.dumps({"_id": one, **body})) for collection, one in rows),
        )
    file.close()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED.replace("FEW", str(FEW)).replace("MANY", str(MANY))],
        cwd=office.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    few, many = (tuple(map(int, line.split())) for line in done.stdout.splitlines())
    leak = (MANY - FEW) * LONG
    for what, before, after in zip(("Python", "SQLite"), few, many, strict=True):
        assert after - before < leak / 3, f"{what}: {before:,} bytes, then {after:,}"


def test_what_is_only_stuck_is_put_away_or_removed_by_its_id_and_a_word(office: Office) -> None:
    fill(office)
    bare = office("documents", "purge", "messages", "lost", "--yes")
    assert bare.exit_code == 1
    assert "lost was refused: it was not given up: " in bare.stdout
    assert "say --stuck" in bare.stdout
    everything = office("documents", "purge", "messages", "--all", "--stuck", "--yes")
    assert isinstance(everything.exception, ConfigurationError)
    assert "--stuck is accepted with ids only" in str(everything.exception)
    removed = office("documents", "purge", "messages", "lost", "soon", "--stuck", "--yes")
    assert removed.exit_code == 0, removed.output
    moved = office("documents", "archive", "messages", "dead", "gone", "--stuck")
    assert moved.exit_code == 0, moved.output
    assert (office.ids(), office.ids("messages_dead_letter")) == (["done", "new"], ["dead", "gone"])
    assert office("documents", "restore", "messages", "dead").exit_code == 0
    assert office.get("dead")["status"] == "pending"


def test_what_somebody_may_have_stays_even_if_a_person_insists(office: Office) -> None:
    fill(office)
    hour = office.ago(HOUR)
    soon = office.ago(-HOUR / 60)
    tried = {"status": "pending", "attemptCount": 1, "lastAttemptTime": hour}
    office.put("messages", "held", **tried)
    office.put("messages", "scheduled", **tried, retryAt=soon)
    office.put("messages", "leased", **tried, leaseToken="w", leaseUntil=soon)
    office.put("messages", "claimed", **tried, claimToken="s", claimUntil=soon)
    names = ("held", "scheduled", "leased", "claimed", "new", "done")
    done = office("documents", "purge", "messages", *names, "--stuck", "--yes")
    assert done.exit_code == 1
    assert set(names) <= set(office.ids())
    for name, why in zip(
        names,
        (
            "a worker may",
            "a worker may",
            "a worker has",
            "a sweeper is",
            "it is new",
            "it is processed",
        ),
        strict=True,
    ):
        assert f"{name} was refused: {why}" in done.stdout


def test_nothing_such_is_an_exit_code_of_1(office: Office) -> None:
    fill(office)
    for words in (
        ("reset", "messages", "--error", "KeyErorr"),
        ("reset", "nosuch", "--all"),
        ("restore", "messages", "--all"),
        ("export", "nosuch"),
        ("export", "messages", "--error", "KeyErorr"),
    ):
        assert office("documents", *words).exit_code == 1, words
    office.put("chunks", "done", status="processed")
    assert office("documents", "reset", "chunks", "--all").exit_code == 0  # none was given up


def test_an_archive_is_not_swept_so_nothing_there_is_reset_or_archived(office: Office) -> None:
    office.give_up("gone", collection="messages_dead_letter")
    shown = office("documents", "stuck", "messages_dead_letter").stdout
    assert "headway documents restore messages --all" in shown
    assert "headway documents reset" not in shown
    for words in (("reset",), ("archive",), ("restore",), ("retry", "--at", "now")):
        done = office("documents", words[0], "messages_dead_letter", "--all", *words[1:])
        assert isinstance(done.exception, ConfigurationError)
        assert "headway documents restore messages)" in str(done.exception)
    assert office("documents", "purge", "messages_dead_letter", "--all", "--yes").exit_code == 0
    assert office.ids("messages_dead_letter") == []


def test_an_archive_says_who_put_documents_there(office: Office) -> None:
    office.give_up("a", "b", "c")
    office("documents", "archive", "messages", "a")
    office("documents", "archive", "messages", "--all")
    office.give_up("d")
    assert office("documents", "reset", "messages", "d").exit_code == 0
    (who,) = {each["who"] for each in office.json("history")}
    lines = office("documents", "stuck", "messages_dead_letter").stdout.splitlines()
    told = lines[lines.index("The latest changes by which documents came here:") + 1 :]
    assert [line.split(" on ")[0] for line in told] == [
        f"  2 of 2 archived by {who}",
        f"  1 of 1 archived by {who}",
    ]
    assert told[0].endswith(f"Z: all status={GONE}")
    assert told[1].endswith("Z: ids=a")
    office.give_up("d")
    assert "archived by" not in office("documents", "stuck", "messages").stdout


def test_a_last_attempt_at_an_unknown_time_is_not_called_none(office: Office) -> None:
    office.put("messages", "odd", status="failed", attemptCount=1, lastAttemptTime="yesterday")
    (line,) = [
        line
        for line in office("documents", "stuck", "messages").stdout.splitlines()
        if line.startswith("odd")
    ]
    assert "1 of 3" in line
    assert "unknown" in line
    assert "never" not in line


def test_a_status_that_nobody_knows_is_refused_with_the_cure(office: Office) -> None:
    office.put("messages", "odd", status="FAILED")
    assert (
        "write pending or failed into it" in office("documents", "reset", "messages", "odd").stdout
    )
    assert "odd" in office("documents", "export", "messages", "--status", "foreign").stdout
    bare = office("documents", "reset", "messages")
    assert "--status STATUS" in str(bare.exception)


def test_stuck_says_of_what_no_event_can_be_made(
    office: Office, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = f"rebuilding_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(REBUILDING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    office.put("archives", "good", status="pending", source="mail")
    office.put("archives", "bad", status="pending")
    shown = office("documents", "stuck", "archives", "--service", f"{module}:parsing").stdout
    assert "leave it: KeyError" in shown
    assert "     1 stuck: no event can be made of them" in shown
    assert "     1 stuck: the next sweep requeues them" in shown
    found = office.json("stuck", "archives", "--service", f"{module}:parsing")
    sweeps = {each["_id"]: (each["sweep"], each["why"]) for each in found}
    assert sweeps == {"good": ("requeue", ""), "bad": ("leave", "no event can be made of it")}
