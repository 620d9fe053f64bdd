"""`headway consensus`, as it is typed."""

import asyncio
import contextlib
import io
import json
import logging
import os
import re
import shutil
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner, Result

from headway import ConfigurationError, connect
from headway.apps.cli import consensus_ingesting
from headway.apps.cli.consensus_away import said_in_one_line_of
from headway.apps.cli.consensus_ingesting import _parsed_before
from headway.apps.cli.consensus_known import without_known
from headway.apps.cli.consensus_looking import show_found
from headway.apps.cli.consensus_progress import EMBEDDING, PARSED, Counts, Screen
from headway.apps.cli.consensus_reading import _visible, meant
from headway.apps.cli.refusals import UnavailableError
from headway.systems.consensus.demo.archives import POISON
from headway.systems.consensus.failures import VectorsMismatchError
from headway.systems.consensus.sample import sample_archives
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.status import Status
from headway.systems.consensus.telling import Teller, Told, TroubleTeller, read
from headway.systems.consensus.workers import Workers
from headway.testing.servers.process import Process, wait_until
from tests.cli.test_command import COMMAND, headway
from tests.commands import app
from tests.systems.consensus.test_pipeline import mbox

MINE = "my mail, #1 50%"
QUIETLY = {"ERROR_REPORTER_TYPE": "noop"}


def consensus(*words: str, folder: Path) -> Any:
    return headway("consensus", *words, folder=folder, environment=QUIETLY)


def looked(*words: str, folder: Path) -> Result:
    """Look with a command in this process, which takes a tenth of the time."""
    with contextlib.chdir(folder):
        return CliRunner().invoke(app, ["consensus", *words])


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder in which a small archive with a message that is none was ingested."""
    folder = tmp_path_factory.mktemp("mail")
    path = mbox(folder / "talk.mbox")
    with path.open("ab") as file:
        file.write(POISON)
    submitted = consensus("ingest", "talk.mbox", "--no-run", folder=folder)
    assert submitted.returncode == 0, submitted.stderr
    assert "headway run headway.systems.consensus.pipeline --bus sqlite:///" in submitted.stdout
    waiting = json.loads(looked("status", "--json", folder=folder).stdout)["waiting"]
    assert waiting == {"ingestion.archive.submitted": 1}
    done = consensus("ingest", folder=folder)  # goes on with what was submitted
    (folder / "said").write_text(done.stdout)
    assert done.returncode == 1, done.stdout + done.stderr
    return folder


def test_what_failed_is_named_with_the_command_to_look_at_it(ingested: Path) -> None:
    said = (ingested / "said").read_text()
    assert "1 letter in parsing.failed" in said
    (words,) = re.findall(r"^  headway (failed inspect parsing\.failed .*)$", said, re.MULTILINE)
    (letter,) = json.loads(headway(*words.split(), "--json", folder=ingested).stdout)
    assert letter["last_error"].startswith("UnreadableMailError")


def test_the_status_counts_everything(ingested: Path) -> None:
    found = json.loads(looked("status", "--json", folder=ingested).stdout)
    assert found["waiting"] == {}
    assert found["failed"]["parsing.failed"] == 1
    assert found["collections"]["messages"] == {"processed": 5}
    assert found["collections"]["slices"] == {"processed": 1, "failed": 1}
    assert found["collections"]["summaries"] == {"processed": 2}
    assert (found["without_text"], found["duplicates"], found["differing"]) == (0, 0, 0)
    shown = looked("status", folder=ingested).stdout
    assert re.search(r"slices +2 +1 +1", shown)
    assert "Nothing is on its way any more." in shown


def test_an_archive_whose_event_was_lost_is_not_called_finished(tmp_path: Path) -> None:
    mbox(tmp_path / "talk.mbox")
    assert looked("ingest", "talk.mbox", "--no-run", folder=tmp_path).exit_code == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "consensus-data" / "headway.db")) as file:
        file.execute("delete from headway_items")
        file.commit()
    done = looked("ingest", folder=tmp_path)
    assert done.exit_code == 1
    assert "Name its PATH again" in done.stdout
    assert "The pages are in" not in done.stdout


def test_the_same_archive_again_changes_nothing(ingested: Path) -> None:
    before = looked("status", "--json", folder=ingested).stdout
    log = (ingested / "consensus-data" / "workers.log").read_bytes()
    again = looked("ingest", "talk.mbox", folder=ingested)
    assert again.exit_code == 1  # the letter is still there
    assert "1 archive is known already" in again.stderr
    assert (ingested / "consensus-data" / "workers.log").read_bytes() == log  # none was started
    assert looked("status", "--json", folder=ingested).stdout == before


def test_an_archive_is_not_known_when_it_was_changed_or_its_copy_was_lost(
    ingested: Path, tmp_path: Path
) -> None:
    async def new() -> list[str]:
        async with connect(f"sqlite:///{ingested}/consensus-data/headway.db") as bus:
            return await without_known(bus, [path], data)

    path, data = str(ingested / "talk.mbox"), ingested / "consensus-data"
    assert asyncio.run(new()) == []
    data = tmp_path  # where no copy is
    assert asyncio.run(new()) == [path]
    data = ingested / "consensus-data"
    content = (ingested / "talk.mbox").read_bytes()
    (ingested / "talk.mbox").write_bytes(content + b"\n")
    assert asyncio.run(new()) == [path]
    (ingested / "talk.mbox").write_bytes(content)


def test_what_failed_is_not_waited_for(ingested: Path) -> None:
    async def parsed() -> int:
        async with connect(f"sqlite:///{ingested}/consensus-data/headway.db") as bus:
            return await _parsed_before(bus)

    assert asyncio.run(parsed()) == 5  # of six, the sixth is a letter


def test_a_folder_with_a_name_that_is_no_text_is_submitted(tmp_path: Path) -> None:
    for name in (b"plain.mbox", b"\xff.mbox"):
        mbox(tmp_path / os.fsdecode(name))
    submitted = looked("ingest", ".", "--no-run", folder=tmp_path)
    assert submitted.exit_code == 0, submitted.stderr
    waiting = json.loads(looked("status", "--json", folder=tmp_path).stdout)["waiting"]
    assert waiting == {"ingestion.archive.submitted": 2}


def test_a_file_that_was_refused_gets_no_second_letter_unless_it_changes(tmp_path: Path) -> None:
    def waiting() -> dict[str, int]:
        found: dict[str, int] = json.loads(looked("status", "--json", folder=tmp_path).stdout)[
            "waiting"
        ]
        return found

    broken = tmp_path / "broken.mbox"
    broken.write_bytes(b"\0 this was never mail")
    first = consensus("ingest", "broken.mbox", folder=tmp_path)
    assert "1 letter in archive.ingestion.failed" in first.stdout
    again = looked("ingest", "broken.mbox", "--no-run", folder=tmp_path)
    assert "1 file was refused before, and not changed since" in again.stderr
    assert waiting() == {}
    broken.write_bytes(b"\0 nor is this")
    looked("ingest", "broken.mbox", "--no-run", folder=tmp_path)
    assert waiting() == {"ingestion.archive.submitted": 1}


def test_what_is_pending_without_an_event_is_said_with_the_command_that_helps(
    ingested: Path, tmp_path: Path
) -> None:
    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    with closing(sqlite3.connect(tmp_path / "consensus-data" / "headway.db")) as file:
        file.execute(
            "update headway_documents set body = json_set(body, '$.status', 'pending') "
            "where collection = 'threads'"
        )
        file.commit()
    done = looked("ingest", folder=tmp_path)
    assert done.exit_code == 1
    assert "2 documents are pending" in done.stdout
    sweep = "headway sweep headway.systems.consensus.pipeline --once --bus sqlite:///consensus-data"
    assert sweep in done.stdout
    assert "Everything else is finished." not in done.stdout
    assert "Everything else is finished." in (ingested / "said").read_text()


def test_a_question_finds_its_message(ingested: Path) -> None:
    done = looked("search", "who lost a red cable?", "--top", "2", "--json", folder=ingested)
    found = json.loads(done.stdout)
    assert found[0]["subject"] == "Red cable"
    assert "rack 4" in found[0]["text"]
    assert len(found) <= 2
    shown = looked("search", "red cable", folder=ingested).stdout
    assert shown.startswith(" 1  Red cable")
    assert f"thread {found[0]['thread_id']}" in shown


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        ("openai", r"127\.0\.0\.1:9/v1 does not answer: .*refused.*CONSENSUS_EMBEDDING_URL"),
        ("wordllama", r"127\.0\.0\.1:1: .*refused.*CONSENSUS_VECTORS"),
    ],
)
def test_who_does_not_answer_a_question_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, why: str
) -> None:
    monkeypatch.setenv("CONSENSUS_EMBEDDING_BACKEND", backend)
    monkeypatch.setenv("CONSENSUS_EMBEDDING_URL", "http://bob:secret@127.0.0.1:9/v1")
    monkeypatch.setenv("CONSENSUS_VECTORS", "http://127.0.0.1:1")
    asked = looked("search", "red cable", folder=tmp_path)
    assert isinstance(asked.exception, UnavailableError)
    assert re.search(why, str(asked.exception))
    assert "secret" not in str(asked.exception)


def test_vectors_of_another_size_are_refused_in_one_line() -> None:
    with (
        pytest.raises(ConfigurationError, match="cannot be compared"),
        said_in_one_line_of(ConsensusSettings()),
    ):
        raise VectorsMismatchError("the two cannot be compared")


def test_a_question_without_words_finds_nothing(ingested: Path) -> None:
    done = looked("search", "?", folder=ingested)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "nothing speaks of '?'" in done.stderr


def test_a_summary_is_found_by_the_id_of_its_thread_and_by_its_subject(ingested: Path) -> None:
    threads = json.loads(looked("summary", "--list", "--json", folder=ingested).stdout)
    assert {each["subject"]: each["messages"] for each in threads} == {
        "Nightly builds": 3,
        "Red cable": 1,
    }
    (builds,) = [each for each in threads if each["subject"] == "Nightly builds"]
    by_subject = looked("summary", "nightly", folder=ingested)
    assert by_subject.exit_code == 0
    assert by_subject.stdout.startswith("Nightly builds\n3 messages, 2026-03-02 to 2026-03-04")
    assert "move the nightly builds" in by_subject.stdout
    alone = looked("summary", "red cable", folder=ingested).stdout
    assert alone.startswith("Red cable\n1 message, 2026-03-05 to ")
    by_id = looked("summary", builds["thread_id"][:6], "--json", folder=ingested)
    assert json.loads(by_id.stdout)["summary_id"] == builds["summary_id"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ingest", "nowhere.mbox"), "PATH='nowhere.mbox' is not accepted: nothing is there"),
        (("ingest", "*.mbox"), "PATH='*.mbox' is not accepted: nothing is there"),
        (("ingest", "."), "PATH='.' is not accepted: no mail is in the folder"),
        (("ingest",), "nothing is in consensus-data yet"),
        (("status",), "nothing is in consensus-data yet"),
        (("search", "what"), "nothing is in consensus-data that could be searched"),
        (("summary", "--list", "--data", "mine"), "nothing is in mine yet"),
    ],
)
def test_where_nothing_is_it_says_so_and_leaves_nothing_behind(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = looked(*words, folder=tmp_path)
    assert isinstance(done.exception, ConfigurationError)  # exit code 2, in one line
    assert said in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("talk.mbox", "it is a file"),
        ("talk.mbox/inner", "not a directory"),
        ("/proc/nobody-can-make-this", "no such file or directory"),
    ],
)
def test_a_data_folder_that_cannot_be_made_is_refused(data: str, why: str, tmp_path: Path) -> None:
    mbox(tmp_path / "talk.mbox")
    done = looked("ingest", "talk.mbox", "--data", data, folder=tmp_path)
    assert isinstance(done.exception, ConfigurationError)
    assert str(done.exception) == (
        f"--data='{data}' is not accepted: {why}; name a folder that you may write to"
    )


def test_a_file_that_is_no_mail_is_refused_before_anything_is_submitted(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk\n")
    done = looked("ingest", "notes.txt", folder=tmp_path)
    assert isinstance(done.exception, ConfigurationError)
    assert "PATH='notes.txt' is not accepted: notes.txt is no archive" in str(done.exception)
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_ctrl_c_before_anything_is_submitted_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(_path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(consensus_ingesting, "find_archives", pressed)
    done = looked("ingest", "talk.mbox", folder=tmp_path)
    assert (done.exit_code, done.stderr) == (130, "stopped: nothing was submitted yet\n")


def test_a_thread_without_text_waits_for_no_summary(ingested: Path, tmp_path: Path) -> None:
    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    with closing(sqlite3.connect(tmp_path / "consensus-data" / "headway.db")) as file:
        file.execute(
            "update headway_documents set body = json_set(body, '$.summary_id', null) "
            "where collection = 'threads' and json_extract(body, '$.subject') = 'Red cable'"
        )
        file.commit()
    assert re.search(r"no text +Red cable", looked("summary", "--list", folder=tmp_path).stdout)
    one = looked("summary", "red cable", folder=tmp_path)
    assert one.exit_code == 1
    assert "has no text: there is nothing to summarize" in one.stderr
    assert "1 thread has no text" in looked("status", folder=tmp_path).stdout


def test_what_is_only_near_in_meaning_is_said_to_be(ingested: Path) -> None:
    near = looked("search", "zzzqqq xylophone", folder=ingested)
    assert near.stdout.startswith("None of these has a word of your question")
    found = json.loads(looked("search", "zzzqqq", "--json", folder=ingested).stdout)
    assert {each["has_words"] for each in found} == {False}
    assert "None of these" not in looked("search", "red cable", folder=ingested).stdout


def test_names_of_queues_stay_whole_on_a_narrow_terminal(
    ingested: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.chdir(ingested):
        words = ["failed", "list", "--bus", "sqlite:///consensus-data/headway.db"]
        said = CliRunner().invoke(app, words).stdout
    assert "embedding.generation.failed " in said
    assert said.splitlines()[0].split() == ["queue", "letters", "oldest"]


def test_help_says_what_is_so() -> None:
    said = " ".join(CliRunner().invoke(app, ["consensus", "ingest", "--help"]).stdout.split())
    assert "Usage: headway consensus ingest [OPTIONS] [PATH]... " in said
    assert "[default: HEADWAY_BUS, or headway.db in the data folder]" in said
    assert "without a name, consensus" in CliRunner().invoke(app, ["demo", "--help"]).stdout


def count(folder: Path, collection: str) -> int:
    with closing(sqlite3.connect(folder / MINE / "headway.db")) as file:
        query = "select count(*) from headway_documents where collection = ?"
        return int(file.execute(query, (collection,)).fetchone()[0])


def test_ctrl_c_stops_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words = ["consensus", "ingest", str(sample_archives()[0]), "--data", MINE]
    running = Process(
        ["env", "--default-signal=INT", *COMMAND, *words],
        log=tmp_path / "log",
        environment={"PATH": "/usr/bin:/bin", **QUIETLY},
    )
    try:
        there = tmp_path / MINE / "workers.log"
        assert wait_until(
            lambda: there.exists() and "Running" in there.read_text(), timedelta(seconds=60)
        )
        assert wait_until(lambda: count(tmp_path, "messages") > 0, timedelta(seconds=60))
        assert running.end(signal.SIGINT, timedelta(seconds=60))
    finally:
        running.kill()
    assert "stopped: the same command goes on from there" in (tmp_path / "log").read_text()
    log = there.read_text()
    begun = set(re.findall(r"Running .*\(process (\d+)\)", log))
    # None was killed. One that is told to stop while it starts never says that it runs.
    assert begun <= set(re.findall(r"Stopped \(process (\d+)\)", log))
    assert count(tmp_path, "summaries") < 21
    done = headway(*words, folder=tmp_path, environment=QUIETLY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (count(tmp_path, "messages"), count(tmp_path, "summaries")) == (200, 21)


async def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    program = "import sys; sys.stderr.write('CONSENSUS_X is wrong'); sys.exit(2)"
    workers = Workers(
        1,
        environment={},
        log=tmp_path / "log",
        on_told=lambda _: None,
        command=[COMMAND[0], "-c", program],
    )
    with pytest.raises(ConfigurationError, match="could not start: CONSENSUS_X is wrong"):
        async with workers:
            await workers._places[0]


THREADS: list[dict[str, Any]] = [
    {"_id": "ab12", "subject": "Red cable"},
    {"_id": "ab34", "subject": "Red cable, again"},
    {"_id": "cd56", "subject": None},
]


@pytest.mark.parametrize(
    ("words", "named"), [("ab3", "ab34"), ("red cable", "ab12"), ("AGAIN", "ab34"), ("cd", "cd56")]
)
def test_a_thread_is_named_in_several_ways(words: str, named: str) -> None:
    assert meant(words, THREADS)["_id"] == named


def test_a_thread_that_may_be_several_is_refused_with_their_names() -> None:
    with pytest.raises(ConfigurationError, match="one of 2: ab12 Red cable; ab34 Red cable, again"):
        meant("ab", THREADS)
    with pytest.raises(ConfigurationError, match="no such thread"):
        meant("blue", THREADS)


def test_messages_that_were_passed_over_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    show_found(Status(collections=[], waiting={}, failed=[], duplicates=3, differing=1))
    said = capsys.readouterr().out
    assert "3 messages were passed over" in said
    assert "with another text: 1." in said
    show_found(Status(collections=[], waiting={}, failed=[]))
    assert "passed over" not in capsys.readouterr().out


def test_mail_says_nothing_to_the_terminal_itself() -> None:
    assert _visible("a\x1b[31mred\tb") == "a\\x1b[31mred\tb"


def test_stages_with_nothing_to_do_are_not_shown() -> None:
    progress = Progress(disable=True)
    screen = Screen(Counts({}, messages=0, threads=3), progress)
    screen.draw(0.0)
    assert [each.description for each in progress.tasks if each.visible] == ["threads summarized"]
    screen.counts.messages = 1
    screen.draw(0.0)
    assert all(each.visible for each in progress.tasks)


def test_why_nothing_moves_is_said_now_and_then() -> None:
    lines = io.StringIO()
    progress = Progress(console=Console(file=lines), disable=True)
    screen = Screen(Counts({}), progress)

    def heard(*told: Told, at: float) -> list[str]:
        lines.seek(0)
        lines.truncate()
        for each in told:
            screen.hear(each)
        screen.draw(at)
        return lines.getvalue().splitlines()

    early = Told(what="retry", service="a", event_type="E", verdict="not_yet", words="not there")
    again = Told(what="retry", service="a", event_type="E", verdict="transient", words="no room")
    log = logging.getLogger("headway")
    piped = io.StringIO()
    teller = TroubleTeller(Teller(piped))
    log.addHandler(teller)
    try:
        log.error("The engine did not %s: %s", "commit", "disk is full")
        log.error("Event retry", extra={"event_type": "E"})  # of this there is a fact
    finally:
        log.removeHandler(teller)
    (line,) = piped.getvalue().splitlines()
    trouble = read(line.encode())
    assert trouble is not None
    assert heard(early, at=0.0) == []
    assert heard(early, again, at=1.0) == ["a tries again: no room"]
    assert heard(again, trouble, at=2.0) == []
    assert heard(at=9.0) == []
    assert "The engine did not commit: disk is full" in heard(at=11.0)
    assert "The engine did not commit: disk is full" not in heard(at=25.0)


def test_progress_is_of_this_run_and_knows_what_was_left_of_the_last() -> None:
    counts = Counts({PARSED: 10, EMBEDDING: 5}, messages=100)
    counts.waiting = {PARSED: 30}
    counts.done.update(chunking=40, embedding=7, summarization=1)
    assert list(counts.stages()) == [
        ("messages parsed", 60, 100),
        ("messages chunked", 40, 110),
        ("messages embedded", 7, 115),
        ("threads summarized", 1, None),
    ]
