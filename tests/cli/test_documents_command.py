"""`headway documents` on a real file."""

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headway.testing.ports import UNREADABLE, instant
from tests.cli.shops import NASTY, Done, ShopFile, asked, typed, unprintable

GONE = "failed_max_retries"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SERVICES = """
from headway import Lifecycle, Service

embedding = Service(
    "embedding", lifecycles=[Lifecycle("chunks", flag="embedding_generated", max_attempts=5)]
)
parsing = Service("parsing")

@parsing.on("ArchiveIngested", documents=("archives", "archive_ids"), rebuild=lambda d: {
    "archive_ids": [d["_id"]], "source": d["source"],
})
async def parse(event, work): ...
"""
EMBEDDING, PARSING = (("--service", f"declared:{name}") for name in ("embedding", "parsing"))


def ago(age: timedelta) -> str:
    return instant(datetime.now(UTC) - age)


class Office(ShopFile):
    """A file with documents in it, beside a module with services."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "declared.py").write_text(SERVICES)
        self.work()  # which makes the file

    def do(self, *words: str, **environment: str) -> Done:
        return typed("documents", *words, folder=self.folder, environment=environment)

    def found(self, *words: str, **environment: str) -> Any:
        done = self.do(*words, "--json", **environment)
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def stuck(self, collection: str, *words: str, **environment: str) -> dict[str, Any]:
        found = self.found("stuck", collection, *words, **environment)
        return {each["_id"]: each for each in found}

    def write(self, collection: str, bodies: dict[str, str]) -> None:
        with closing(sqlite3.connect(self.path)) as file, file:
            file.executemany(
                "insert or replace into headway_documents (collection, id, body) values (?, ?, ?)",
                [(collection, one, body) for one, body in bodies.items()],
            )

    def give_up(self, *ids: str, collection: str = "messages", error: str = "KeyError") -> None:
        body = {
            "status": GONE,
            "attemptCount": 3,
            "lastAttemptTime": ago(2 * HOUR),
            "lastOperation": "sweep-2:x",
            "sweepGeneration": 2,
            "lastError": {"type": error, "message": "no subject", "at": ago(2 * HOUR)},
            "givenUpAt": ago(HOUR),
        }
        self.write(collection, {one: json.dumps({"_id": one, **body}) for one in ids})

    def get(self, one: str, collection: str = "messages") -> Any:
        (found,) = [each for each in self.documents(collection) if each["_id"] == one]
        return found

    def ids(self, collection: str = "messages") -> list[str]:
        return sorted(each["_id"] for each in self.documents(collection))


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def fill(office: Office) -> None:
    """Put one document of every kind."""
    error = {"type": "TimeoutError", "message": "30 s"}
    tried = {"lastAttemptTime": ago(HOUR / 60), "lastError": error}
    office.put("messages", "lost", status="pending", attemptCount=0, lastAttemptTime=None)
    office.put("messages", "new", status="pending", createdAt=ago(timedelta(seconds=5)))
    office.put("messages", "dead", status="pending", attemptCount=1, lastAttemptTime=ago(3 * DAY))
    office.put("messages", "soon", status="failed", attemptCount=2, **tried)
    office.put("messages", "done", status="processed")
    office.give_up("gone")


# What is stuck


def test_stuck_shows_what_a_sweep_would_do_and_a_line_by_reason(office: Office) -> None:
    fill(office)
    for number, status in enumerate(("FAILED", "weird", 7)):
        office.put("messages", f"odd{number}", status=status)
    lines = office.do("stuck", "messages").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[3:6]] == ["lost", "dead", "soon"]
    assert "1 of 3" in lines[4]
    assert "3 d ago" in lines[4]
    counts = sorted(line.split(":")[0].strip() for line in lines if line.startswith("     "))
    assert counts == ["1 given up", "1 new", "1 stuck", "2 stuck", "3 foreign"]
    found = office.stuck("messages")
    assert set(found) == {"lost", "dead", "soon", "gone"}
    soon = found["soon"]
    assert (soon["status"], soon["attemptCount"], soon["maxAttempts"]) == ("failed", 2, 3)
    assert (soon["sweep"], soon["why"]) == ("leave", "backoff")
    assert soon["due"] > soon["lastAttemptTime"]
    assert soon["lastError"] == {"type": "TimeoutError", "message": "30 s"}
    assert (found["gone"]["why"], found["gone"]["due"]) == ("given up", None)
    assert found["dead"]["sweep"] == "requeue"


def test_settings_and_declared_lifecycles_decide_what_is_stuck(office: Office) -> None:
    at = {"attemptCount": 3, "lastAttemptTime": ago(2 * HOUR)}
    office.put("chunks", "c", **at, embedding_generated=False, lastFailedAt=ago(2 * HOUR))
    office.put("chunks", "ok", **at, embedding_generated=True)
    office.put("threads", "t", status="pending", **at)
    hour = {"RETRY_JOB_STUCK_THRESHOLD_HOURS": "1"}
    services = {"HEADWAY_SERVICES": "declared"}

    def ask(*words: str, **environment: str) -> dict[str, int]:
        found = office.stuck(*words, **environment)
        return {one: each["maxAttempts"] for one, each in found.items()}

    assert ask("chunks") == {}  # by their status, a worker may have them
    assert "embedding_generated" in office.do("stuck", "chunks").stderr
    assert office.do("stuck", "chunks", *EMBEDDING).stderr == ""
    assert ask("chunks", *EMBEDDING) == ask("chunks", **services) == {"c": 5}
    assert "chunks?" in office.do("stuck", "chnks", *EMBEDDING).stderr
    assert ask("threads") == {}
    assert ask("threads", **hour) == ask("threads", **hour, **services) == {"t": 5}


def test_what_no_service_sweeps_is_not_called_due(office: Office) -> None:
    office.put("invoices", "i", status="pending")
    found = office.stuck("invoices", HEADWAY_SERVICES="declared")["i"]
    assert (found["sweep"], found["why"]) == ("leave", "nobody sweeps it")
    assert office.stuck("invoices")["i"]["sweep"] == "requeue", "who sweeps it is not known here"
    assert "HEADWAY_SERVICES" in office.do("stuck", "invoices").stderr


def test_a_collection_that_is_not_there_is_named_with_the_close_ones(office: Office) -> None:
    done = office.do("stuck", "mesages")
    assert (done.returncode, done.stdout, "mesages" in done.stderr) == (1, "", True)
    office.put("messages", "done", status="processed")
    office.put("chunks", "done", status="processed")
    for words in (
        *(["stuck"], ["stuck", "--json"], ["export"], ["reset", "--all"], ["reset", "m1"]),
        *(["retry", "--all", "--at", "1h"], ["purge", "--all", "--yes"], ["archive", "--all"]),
        ["restore", "--all"],
    ):
        done = office.do(words[0], "mesages", *words[1:])
        assert done.returncode == 1
        assert ("restore" in words) or "messages?" in done.stdout + done.stderr
    assert office.do("stuck", "messages").returncode == 0
    assert office.do("reset", "chunks", "--all").returncode == 0  # none was given up
    assert office.do("reset", "messages", "--error", "KeyErorr").returncode == 1
    # A declared collection may be empty, unless it looks mistyped.
    assert office.do("stuck", "archives", *PARSING).returncode == 0
    office.put("archive", "a", status="processed")
    assert office.do("stuck", "archives", *PARSING).returncode == 1


def test_to_look_makes_nothing(office: Office) -> None:
    fill(office)

    def schema() -> list[Any]:
        with closing(sqlite3.connect(office.path)) as file:
            return sorted(file.execute("select type, name, sql from sqlite_master").fetchall())

    before = schema()
    for collection in ("messages", "mesages"):
        office.do("stuck", collection)
        office.do("export", collection)
    assert schema() == before


# What a person decides


def test_a_reset_shows_first_and_then_lets_them_begin_anew(office: Office) -> None:
    office.give_up("a", "b")
    office.give_up("c", error="OSError")
    words = ("reset", "messages", "--error", "KeyError")
    dry = office.do(*words, "--dry-run")
    assert (dry.returncode, "2 of 2" in dry.stdout) == (0, True)
    assert {each["status"] for each in office.documents("messages")} == {GONE}
    assert office.do(*words, "--at", "2h").returncode == 0
    found = office.get("a")
    expected = {
        "status": "pending",
        "attemptCount": 0,
        "lastAttemptTime": None,
        "lastOperation": None,
        "sweepGeneration": 2,
    }
    assert found.items() >= expected.items()
    ahead = datetime.fromisoformat(found["retryAt"]) - datetime.now(UTC)
    assert timedelta(minutes=115) < ahead <= 2 * HOUR
    office.give_up("a", collection="archives")
    advice = office.do("reset", "archives", "--all", *PARSING).stdout.splitlines()[-1]
    assert advice.endswith("headway sweep declared:parsing --once --collection archives")
    command = advice[advice.index("headway sweep") :].split()[1:]
    assert typed(*command, folder=office.folder).returncode in {0, 1}
    assert office.get("c")["status"] == GONE
    assert office.do(*words).returncode == 1  # there is no such document any longer


def test_what_is_refused_or_not_there_is_named_and_the_exit_code_is_1(office: Office) -> None:
    fill(office)
    done = office.do("reset", "messages", "gone", "dead", "done", "nobody")
    assert done.returncode == 1
    first, *named = done.stdout.splitlines()[:4]
    assert first.startswith("1 of 4 ")
    assert [line.split()[0] for line in named] == ["dead", "done", "nobody"]
    office.give_up("gone")
    done = office.do("retry", "messages", "soon", "gone", "--at", "now")
    assert (done.returncode, "gone was refused" in done.stdout) == (1, True)
    soon = office.stuck("messages")["soon"]
    assert (soon["sweep"], soon["attemptCount"]) == ("requeue", 2)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        *((f"{verb} messages", "--all") for verb in ("reset", "purge", "archive", "restore")),
        ("reset messages a --at soon", "--at 'soon'"),
        ("reset messages --status faild", "--status 'faild'"),
        ("retry messages a --at 2000-01-01", "--at '2000-01-01'"),
        ("stuck messages --service no_such:thing", "no_such"),
        ("purge messages --all --stuck --yes", "--stuck"),
        *(
            (f"{verb} messages_dead_letter --all", "restore messages")
            for verb in ("reset", "archive", "restore", "retry --at now")
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(office: Office, words: str, named: str) -> None:
    office.give_up("a")
    office.give_up("b", collection="messages_dead_letter")
    verb, *rest = words.split()
    if "retry --at" in words:
        verb, rest = "retry", ["messages_dead_letter", "--all", "--at", "now"]
    done = office.do(verb, *rest)
    assert (done.returncode, done.stdout, named in done.stderr) == (2, "", True), done
    assert office.get("a")["status"] == office.get("b", "messages_dead_letter")["status"] == GONE


def test_an_export_is_json_lines_with_every_field(office: Office) -> None:
    fill(office)
    printed = office.do("export", "messages", "--status", GONE, "--status", "failed")
    found = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [each["_id"] for each in found] == ["gone", "soon"]
    assert found[0] == office.get("gone")
    assert office.do("export", "messages", "--output", "all.jsonl").returncode == 0
    written = (office.folder / "all.jsonl").read_text().splitlines()
    assert [json.loads(line)["_id"] for line in written] == office.ids()
    refused = office.do("export", "messages", "--output", "all.jsonl")
    assert (refused.returncode, "--force" in refused.stderr) == (2, True)


@pytest.mark.parametrize("yes", ["--yes", "--confirm"])
def test_a_purge_removes_what_was_given_up_and_only_if_it_is_confirmed(
    office: Office, yes: str
) -> None:
    fill(office)
    there = office.ids()
    done = office.do("purge", "messages", "--all")
    assert (done.returncode, "--yes" in done.stderr) == (2, True)
    assert office.do("purge", "messages", "dead", "soon", yes).returncode == 1
    assert (office.ids(), office.found("history")) == (there, [])
    assert office.do("purge", "messages", "--all", yes).returncode == 0
    assert office.ids() == [one for one in there if one != "gone"]


@pytest.mark.parametrize(
    ("answer", "code", "left"),
    [(b"y\n", 0, 0), (b"n\n", 1, 2), (b"\x04", 1, 2), (signal.SIGINT, 130, 2)],
    ids=["yes", "no", "end", "Ctrl-C"],
)
def test_a_person_at_a_terminal_sees_what_is_meant_and_is_asked(
    office: Office, answer: bytes | signal.Signals, code: int, left: int
) -> None:
    office.give_up("mail-a", "mail-b")
    words = ("documents", "purge", "messages", "--all")
    ended, said = asked(office.folder, *words, answer=answer)
    assert "mail-a" in said
    assert "KeyError" in said
    assert "Traceback" not in said
    assert (ended, len(office.ids())) == (code, left)
    assert len(office.found("history")) == (left == 0)


def test_what_is_archived_can_be_brought_back_and_tells_who_put_it_there(office: Office) -> None:
    office.give_up("a", "b", "c")
    assert office.do("archive", "messages", "a").returncode == 0
    assert (office.ids(), office.ids("messages_dead_letter")) == (["b", "c"], ["a"])
    assert office.do("archive", "messages", "--all").returncode == 0
    (who,) = {each["who"] for each in office.found("history")}
    told = office.do("stuck", "messages_dead_letter").stdout
    assert told.count(who) == 2
    assert "headway documents restore messages --all" in told
    assert office.do("restore", "messages", "--all", "--dry-run").returncode == 0
    assert office.do("restore", "messages", "a", "b").returncode == 0
    assert office.ids("messages_dead_letter") == ["c"]
    restored = office.get("a")
    assert (restored["status"], restored["attemptCount"]) == ("pending", 0)
    assert office.do("purge", "messages_dead_letter", "--all", "--yes").returncode == 0
    assert office.ids("messages_dead_letter") == []


def test_what_is_only_stuck_is_archived_or_removed_by_its_id_and_a_word(office: Office) -> None:
    fill(office)
    bare = office.do("purge", "messages", "lost", "--yes")
    assert (bare.returncode, "--stuck" in bare.stdout) == (1, True)
    assert office.do("purge", "messages", "lost", "soon", "--stuck", "--yes").returncode == 0
    assert office.do("archive", "messages", "dead", "gone", "--stuck").returncode == 0
    assert (office.ids(), office.ids("messages_dead_letter")) == (["done", "new"], ["dead", "gone"])
    assert office.do("restore", "messages", "dead").returncode == 0
    assert office.get("dead")["status"] == "pending"


def test_what_a_worker_may_have_stays_even_if_a_person_insists(office: Office) -> None:
    fill(office)
    soon = ago(-HOUR / 60)
    tried = {"status": "pending", "attemptCount": 1, "lastAttemptTime": ago(HOUR)}
    office.put("messages", "held", **tried)
    office.put("messages", "scheduled", **tried, retryAt=soon)
    office.put("messages", "leased", **tried, leaseToken="w", leaseUntil=soon)
    office.put("messages", "claimed", **tried, claimToken="s", claimUntil=soon)
    office.put("messages", "odd", status="FAILED")
    names = ("held", "scheduled", "leased", "claimed", "new", "done", "odd")
    done = office.do("purge", "messages", *names, "--stuck", "--yes")
    assert done.returncode == 1
    assert set(names) <= set(office.ids())
    assert all(f"{name} was refused" in done.stdout for name in names)


# What stays of a change


def test_the_history_says_who_did_what(office: Office) -> None:
    many = [f"mail-{n:04}" for n in range(90)]
    office.give_up("a", "b", *many)
    record = json.loads(office.do("reset", "messages", *many).stderr)
    assert record["logger"] == "headway.operator"
    assert (record["change"], record["documents"]) == ("reset", 90)
    assert "@" in record["operator"]
    office.do("archive", "messages", "a")
    office.do("reset", "messages", "--all")
    office.do("reset", "messages", "--all", "--dry-run")
    newest, older, _ = office.found("history")
    assert (newest["what"], newest["selection"]) == ("reset", f"all status={GONE}")
    assert (older["what"], older["ids"], older["outcome"]) == ("archive", ["a"], "complete")
    assert "@" in newest["who"]
    lines = office.do("history").stdout.splitlines()
    assert len([line for line in lines if "mail-0003" in line]) == 1  # it is not folded
    assert len(office.found("history", "--limit", "1")) == 1


def test_nothing_in_a_document_speaks_to_the_terminal(office: Office) -> None:
    error = {"type": NASTY, "message": NASTY}
    office.put("messages", NASTY, status="failed", attemptCount=1, lastError=error)
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
        assert unprintable(said) == [], words


MEASURED = """
import asyncio, ctypes, tracemalloc, _sqlite3
from headway.clock import CHANCE, CLOCK
from headway.operations import Choice, Decision, StoredDocuments
from headway.testing.engines import open_engine
from headway.testing.ports import State

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


@pytest.mark.chaos
def test_many_documents_take_no_more_memory_than_few(office: Office) -> None:
    """As Python and SQLite themselves say what they had at most.

    By chance one connection more has filled its cache, of 2 MB: that is less than is allowed.
    """
    body = {"status": "failed", "attemptCount": 1, "text": "x" * LONG}
    for collection, size in (("few", FEW), ("many", MANY)):
        names = [f"m{n:05}" for n in range(size)]
        office.write(collection, {one: json.dumps({"_id": one, **body}) for one in names})
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


# Rows that hold no document

LOST = {"text": "not json", "list": "[1]"}


@pytest.fixture
def unreadable(office: Office) -> Office:
    office.write("messages", LOST)
    office.put("messages", "theirs", status="on holiday")
    return office


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--status foreign", [*LOST, "theirs"]),
        ("text", ["text"]),
        ("--error unreadable", [*LOST]),
        ("", [*LOST, "theirs"]),
    ],
)
def test_what_cannot_be_read_is_exported(unreadable: Office, words: str, shown: list[str]) -> None:
    done = unreadable.do("export", "messages", *words.split())
    assert done.returncode == 0, done
    found = {each["_id"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert sorted(found) == sorted(shown)
    for one in found.keys() & LOST.keys():
        assert found[one][UNREADABLE] == LOST[one]
        assert found[one]["lastError"]["type"] == "unreadable"


def test_what_cannot_be_read_is_counted_and_only_purged_by_its_id(unreadable: Office) -> None:
    assert "3 foreign" in unreadable.do("stuck", "messages").stdout
    for words in (["reset", "text"], ["archive", "text"], ["purge", "--all", "--yes"]):
        assert unreadable.do(words[0], "messages", *words[1:]).returncode in {0, 1}
    exported = unreadable.do("export", "messages", "--error", "unreadable").stdout
    assert len(exported.splitlines()) == len(LOST)
    assert unreadable.do("purge", "messages", "text", "--dry-run").returncode == 0
    assert unreadable.do("purge", "messages", "text", "--yes").returncode == 0
    left = unreadable.do("export", "messages", "text", "list").stdout.splitlines()
    assert [json.loads(line)["_id"] for line in left] == ["list"]
    assert unreadable.do("stuck", "letters").returncode == 1
    unreadable.write("letters", LOST)
    assert unreadable.do("stuck", "letters").returncode == 0  # the collection is there
