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
from headway.apps.cli.commands import app
from headway.apps.cli.consensus_progress import EMBEDDING, PARSED, Counts
from headway.apps.cli.consensus_reading import _visible, meant
from headway.systems.consensus.demo.archives import POISON
from headway.systems.consensus.sample import sample_archives
from headway.systems.consensus.workers import Workers
from headway.testing.servers.process import Process, wait_until
from tests.cli.test_command import COMMAND, headway
from tests.consensus.test_pipeline import mbox

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
    shown = looked("status", folder=ingested).stdout
    assert re.search(r"slices +2 +1 +1", shown)
    assert "Nothing is on its way any more." in shown


def test_the_same_archive_again_changes_nothing(ingested: Path) -> None:
    before = looked("status", "--json", folder=ingested).stdout
    again = consensus("ingest", "talk.mbox", folder=ingested)
    assert again.returncode == 1  # the letter is still there
    assert looked("status", "--json", folder=ingested).stdout == before


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
    assert begun == set(re.findall(r"Stopped \(process (\d+)\)", log))  # none was killed
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


def test_mail_says_nothing_to_the_terminal_itself() -> None:
    assert _visible("a\x1b[31mred\tb") == "a\\x1b[31mred\tb"


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
