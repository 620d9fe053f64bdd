"""`headway demo consensus`: the command itself, and what it makes of what it sees."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headway.apps.cli.calling import own_name
from headway.apps.cli.demo_consensus import _show
from headway.apps.cli.demo_consensus_screen import _line, shown
from headway.systems.consensus.demo.faults import Breakable
from headway.systems.consensus.demo.hearing import Heard
from headway.systems.consensus.demo.run import Books, Played
from headway.systems.consensus.demo.story import Fault, Line, Story
from headway.systems.consensus.status import CollectionStatus, FailedStatus, Status
from headway.systems.consensus.telling import Told, read
from headway.systems.consensus.vectors.file import FileVectors
from tests.cli.test_command import headway


def test_five_things_go_wrong_and_nothing_is_missing(tmp_path: Path) -> None:
    """A month of the list; with all three it is the same, and takes longer."""
    kept = tmp_path / "kept"
    words = ("demo", "consensus", "--months", "1", "--keep", str(kept), "--json")
    # Settings of the machine it runs on are not its own.
    done = headway(*words, folder=tmp_path, environment={"RETRY_MAX_ATTEMPTS": "0"})
    found = json.loads(done.stdout)
    assert (found["shortcomings"], done.returncode) == ([], 0), done.stderr
    assert {each["short"]: each["seen"] for each in found["faults"]} == dict.fromkeys(
        ("poison", "late", "outage", "loss", "death"), True
    )
    assert found["seconds"] < 100
    assert (found["books"]["difference"], found["books"]["places"]["unrouted"]) == (0, 0)
    assert found["collections"]["messages"] == {"processed": 200}
    (letter,) = found["letters"]
    named = ["--bus", f"sqlite:///{kept}/headway.db"]
    looked = json.loads(headway("failed", "inspect", "parsing", "--json", *named).stdout)
    assert [each["letter_id"] for each in looked] == [letter["letter_id"]]


def test_a_folder_that_is_not_empty_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = headway("demo", "consensus", "--keep", str(tmp_path))
    assert done.returncode == 2
    assert "name a new or empty folder" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
    done = headway("demo", "consensus", "--keep", str(tmp_path / "mine" / "kept"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not accepted: not a directory; name a folder" in done.stderr


def a_status(**changes: Any) -> Status:
    done = {"archives": 1, "slices": 1, "messages": 9, "chunks": 10, "threads": 2, "summaries": 2}
    collections = [
        CollectionStatus(collection=name, states={"processed": number})
        for name, number in done.items()
    ]
    letter = FailedStatus(queue="parsing.failed", letters=1, oldest=None)
    return replace(Status(collections=collections, waiting={}, failed=[letter]), **changes)


def a_run(**changes: Any) -> Played:
    books = Books(places={"done": 5}, accepted=5, difference=0, missing=(), ok=True)
    run = Played(
        seconds=1.0,
        messages=9,
        threads=2,
        faults=[Fault(name="worker killed", short="death", seen=True)],
        status=a_status(),
        pages=2,
        vectors=10,
        books=books,
        letters=(),
    )
    return replace(run, **changes)


def test_a_run_without_shortcomings_has_none() -> None:
    assert a_run().shortcomings() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"faults": [Fault(name="worker killed", short="death")]},
            "worker killed: nothing was seen of it",
        ),
        ({"messages": 10}, "messages: 9 instead of 10"),
        ({"vectors": 11}, "vectors: 11 instead of 10"),
        ({"pages": 1}, "pages: 1 instead of 2"),
        ({"status": a_status(waiting={"q": 1})}, "events that still wait: 1 instead of 0"),
        ({"status": a_status(failed=[])}, "letters: 0 instead of 1"),
        (
            {"books": Books(places={}, accepted=6, difference=1, missing=["x"], ok=False)},
            "the books do not balance: the difference is 1",
        ),
    ],
)
def test_what_is_not_as_promised_is_said(changes: dict[str, Any], said: str) -> None:
    assert a_run(**changes).shortcomings() == [said]


def test_what_workers_tell_is_counted_by_event() -> None:
    heard = Heard(lambda: 4.0)

    def told(what: Any, key: str = "", service: str = "chunking", **more: Any) -> None:
        heard.take(Told(what=what, service=service, event_type="X", key=key, **more))

    told("retry", "a", verdict="not_yet")
    told("retry", "a", verdict="not_yet")
    told("retry", "b", verdict="transient")
    told("recovered", "a")
    told("recovered", "b")
    told("parked", "c", service="embedding")
    told("parked", "c", service="embedding")
    told("down", service="embedding")
    told("back", service="embedding")
    told("letter", "d", service="parsing")
    assert (heard.retries, heard.late, heard.on_time) == (3, {"a": 2}, {"a": 4.0})
    assert (heard.parked, heard.down, heard.back) == ({"c"}, 1, 1)
    assert [each.service for each in heard.letters] == ["parsing"]


def test_what_is_no_line_of_ours_is_passed_over() -> None:
    assert read(b"a library says hello\n") is None
    assert read(b'{"what": "sung", "service": "x", "event_type": "y"}') is None


def test_a_store_refuses_connections_while_the_file_is_there(tmp_path: Path) -> None:
    store = Breakable(FileVectors(tmp_path / "vectors.db", model="m"), tmp_path / "away")
    store.upsert([])
    (tmp_path / "away").touch()
    with pytest.raises(ConnectionRefusedError):
        store.upsert([])
    (tmp_path / "away").unlink()
    store.upsert([])
    store.close()


def test_the_story_is_told_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(quiet=False) as story:
        story.say("The vector store is back.", "answer", "outage")
    said = capsys.readouterr()
    assert (said.out, said.err) == (" 0:00 outage  ✓ The vector store is back.\n", "")


def test_at_the_end_stands_how_to_look_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called = tmp_path / "bin dir" / "headway"
    called.parent.mkdir()
    called.touch()
    monkeypatch.setattr(sys, "argv", [str(called)])
    _show(a_run(), [], Path("kept"))
    said = capsys.readouterr().out
    assert "recovered in: from the fault until" in said
    for words in ("failed requeue parsing --bus sqlite:///kept/headway.db", "consensus ingest"):
        assert f"\n  '{called}' {words}" in said


def test_a_command_on_the_path_is_called_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = tmp_path / "headway"
    called.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(called)])
    assert own_name() == str(called)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_name() == "headway"
    monkeypatch.setattr(sys, "argv", ["src/headway/apps/cli/__main__.py"])
    assert own_name() == "headway"


def test_lines_are_wrapped_below_their_words_and_only_on_a_terminal() -> None:
    line = Line(65.0, "fault", "outage", "The vector store refuses connections, and will for long")
    console = Console(width=50)
    with console.capture() as seen:
        console.print(_line(line, 50))
    assert seen.get() == (
        " 1:05 outage  ✗ The vector store refuses\n                connections, and will for long\n"
    )
    assert _line(line, None).plain.count("\n") == 0


def test_stages_are_counted_before_anything_is_seen() -> None:
    story = Story(lambda _line: None)
    assert [(each.name, each.done) for each in story.stages()] == [
        ("parsed", 0),
        ("chunked", 0),
        ("embedded", 0),
        ("summarized", 0),
    ]
