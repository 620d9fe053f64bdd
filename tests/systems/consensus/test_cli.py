"""`headway consensus`, as it is typed."""

import contextlib
import json
import re
import shutil
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headway import ConfigurationError
from headway.systems.consensus.demo.archives import POISON
from headway.systems.consensus.sample import sample_archives
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


def status(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(looked("status", "--json", folder=folder).stdout)
    return found


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "consensus-data" / "headway.db")) as file:
        file.execute(statement)
        file.commit()


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder in which a small archive with a message that is none was ingested."""
    folder = tmp_path_factory.mktemp("mail")
    path = mbox(folder / "talk.mbox")
    with path.open("ab") as file:
        file.write(POISON)
    submitted = consensus("ingest", "talk.mbox", "--no-run", folder=folder)
    assert submitted.returncode == 0, submitted.stderr
    assert status(folder)["waiting"] == {"ingestion.archive.submitted": 1}
    done = consensus("ingest", folder=folder)  # goes on with what was submitted
    (folder / "said").write_text(done.stdout)
    assert done.returncode == 1, done.stdout + done.stderr
    return folder


@pytest.fixture
def copied(ingested: Path, tmp_path: Path) -> Path:
    """Give a copy of that folder that a test may change, as if all was ingested there."""
    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    here, there = ingested.as_uri(), tmp_path.as_uri()
    change(tmp_path, f"update headway_documents set body = replace(body, '{here}', '{there}')")
    return tmp_path


def test_what_failed_is_named_with_the_command_to_look_at_it(ingested: Path) -> None:
    said = (ingested / "said").read_text()
    (words,) = re.findall(r"^  headway (failed inspect parsing\.failed .*)$", said, re.MULTILINE)
    (letter,) = json.loads(headway(*words.split(), "--json", folder=ingested).stdout)
    assert letter["last_error"].startswith("UnreadableMailError")


def test_the_status_counts_everything(ingested: Path) -> None:
    found = status(ingested)
    assert found["waiting"] == {}
    assert found["failed"]["parsing.failed"] == 1
    assert found["collections"]["messages"] == {"processed": 5}
    assert found["collections"]["slices"] == {"processed": 1, "failed": 1}
    assert found["collections"]["summaries"] == {"processed": 2}
    assert (found["without_text"], found["duplicates"], found["differing"]) == (0, 0, 0)


def test_an_archive_whose_event_was_lost_is_not_called_finished(tmp_path: Path) -> None:
    mbox(tmp_path / "talk.mbox")
    assert looked("ingest", "talk.mbox", "--no-run", folder=tmp_path).exit_code == 0
    change(tmp_path, "delete from headway_items")
    done = looked("ingest", folder=tmp_path)
    assert done.exit_code == 1
    assert "PATH" in done.stdout


def test_the_same_archive_again_changes_nothing(copied: Path) -> None:
    before, log = status(copied), (copied / "consensus-data" / "workers.log").read_bytes()
    again = looked("ingest", "talk.mbox", folder=copied)
    assert again.exit_code == 1  # the dead letter is still there
    assert (copied / "consensus-data" / "workers.log").read_bytes() == log  # none was started
    assert status(copied) == before


@pytest.mark.parametrize("what", ["the archive was changed", "its copy was lost"])
def test_an_archive_that_is_not_known_as_it_is_now_is_submitted_again(
    copied: Path, what: str
) -> None:
    if what == "its copy was lost":
        shutil.rmtree(copied / "consensus-data" / "archives")
    else:
        with (copied / "talk.mbox").open("ab") as file:
            file.write(b"\n")
    looked("ingest", "talk.mbox", "--no-run", folder=copied)
    assert status(copied)["waiting"] == {"ingestion.archive.submitted": 1}


def test_a_file_that_was_refused_gets_no_second_dead_letter_unless_it_changes(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "broken.mbox"
    broken.write_bytes(b"\0 this was never mail")
    consensus("ingest", "broken.mbox", folder=tmp_path)
    assert status(tmp_path)["failed"]["archive.ingestion.failed"] == 1
    looked("ingest", "broken.mbox", "--no-run", folder=tmp_path)
    assert status(tmp_path)["waiting"] == {}
    broken.write_bytes(b"\0 nor is this")
    looked("ingest", "broken.mbox", "--no-run", folder=tmp_path)
    assert status(tmp_path)["waiting"] == {"ingestion.archive.submitted": 1}


def test_what_is_pending_without_an_event_is_said_with_the_command_that_helps(
    copied: Path,
) -> None:
    change(
        copied,
        "update headway_documents set body = json_set(body, '$.status', 'pending') "
        "where collection = 'threads'",
    )
    done = looked("ingest", folder=copied)
    assert done.exit_code == 1
    assert "headway sweep headway.systems.consensus.pipeline --once --bus sqlite:///" in done.stdout


def test_a_question_finds_its_message(ingested: Path) -> None:
    done = looked("search", "who lost a red cable?", "--top", "2", "--json", folder=ingested)
    found = json.loads(done.stdout)
    assert found[0]["subject"] == "Red cable"
    assert "rack 4" in found[0]["text"]
    assert len(found) <= 2
    assert found[0]["thread_id"] in looked("search", "red cable", folder=ingested).stdout
    near = json.loads(looked("search", "zzzqqq", "--json", folder=ingested).stdout)
    assert {each["has_words"] for each in near} == {False}
    nothing = looked("search", "?", folder=ingested)
    assert (nothing.exit_code, nothing.stdout) == (1, "")


@pytest.mark.parametrize("setting", ["CONSENSUS_EMBEDDING_URL", "CONSENSUS_VECTORS"])
def test_a_server_that_does_not_answer_a_question_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    backend = "openai" if setting == "CONSENSUS_EMBEDDING_URL" else "wordllama"
    monkeypatch.setenv("CONSENSUS_EMBEDDING_BACKEND", backend)
    monkeypatch.setenv("CONSENSUS_EMBEDDING_URL", "http://bob:secret@127.0.0.1:9/v1")
    monkeypatch.setenv("CONSENSUS_VECTORS", "http://127.0.0.1:1")
    asked = looked("search", "red cable", folder=tmp_path)
    assert setting in str(asked.exception)
    assert "secret" not in str(asked.exception)


def test_a_summary_is_found_by_the_id_of_its_thread_and_by_its_subject(copied: Path) -> None:
    threads = json.loads(looked("summary", "--list", "--json", folder=copied).stdout)
    assert {each["subject"]: each["messages"] for each in threads} == {
        "Nightly builds": 3,
        "Red cable": 1,
    }
    (builds,) = [each for each in threads if each["subject"] == "Nightly builds"]
    for words in ("nightly", builds["thread_id"][:6], "NIGHTLY BUILDS"):
        found = json.loads(looked("summary", words, "--json", folder=copied).stdout)
        assert found["summary_id"] == builds["summary_id"]
    assert "move the nightly builds" in looked("summary", "nightly", folder=copied).stdout
    for words in ("b", "blue"):  # it may be both of them, or none
        assert isinstance(looked("summary", words, folder=copied).exception, ConfigurationError)
    change(
        copied,
        "update headway_documents set body = json_set(body, '$.summary_id', null, "
        "'$.subject', 'Red cable' || char(27) || '[31m') "
        "where collection = 'threads' and json_extract(body, '$.subject') = 'Red cable'",
    )
    assert "\x1b" not in looked("summary", "--list", folder=copied).stdout
    assert looked("summary", "red cable", folder=copied).exit_code == 1  # it has no text
    assert status(copied)["without_text"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ("ingest", "nowhere.mbox"),
        ("ingest", "."),
        ("ingest",),
        ("status",),
        ("search", "what"),
        ("summary", "--list", "--data", "mine"),
    ],
)
def test_where_nothing_is_it_says_so_and_leaves_nothing_behind(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    done = looked(*words, folder=tmp_path)
    assert isinstance(done.exception, ConfigurationError)  # exit code 2, in one line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("notes.txt",),
        ("talk.mbox", "--data", "talk.mbox"),
        ("talk.mbox", "--data", "/proc/no-process-can-make-this"),
    ],
)
def test_what_cannot_be_ingested_is_refused_before_anything_is_submitted(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("buy milk\n")
    mbox(tmp_path / "talk.mbox")
    done = looked("ingest", *words, folder=tmp_path)
    assert isinstance(done.exception, ConfigurationError)
    assert words[-1] in str(done.exception)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["notes.txt", "talk.mbox"]


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
    log = there.read_text()
    begun = set(re.findall(r"Running .*\(process (\d+)\)", log))
    # None was killed. One that is told to stop while it starts never says that it runs.
    assert begun <= set(re.findall(r"Stopped \(process (\d+)\)", log))
    assert count(tmp_path, "summaries") < 21
    done = headway(*words, folder=tmp_path, environment=QUIETLY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (count(tmp_path, "messages"), count(tmp_path, "summaries")) == (200, 21)
