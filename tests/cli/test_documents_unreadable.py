"""`headway documents` on rows that hold no document: no command ends in a traceback."""

import json
import sqlite3
from pathlib import Path

import pytest

from headway.testing.ports import UNREADABLE
from tests.cli.shops import ShopFile

LOST = {"text": "not json", "list": "[1]"}


@pytest.fixture
def office(tmp_path: Path) -> ShopFile:
    office = ShopFile(tmp_path)
    office.work()  # which makes the file
    with sqlite3.connect(office.path) as file:
        file.executemany(
            "insert into headway_documents (collection, id, body) values ('messages', ?, ?)",
            LOST.items(),
        )
    file.close()
    office.put("messages", "theirs", status="on holiday")
    return office


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--status", "foreign"], {*LOST, "theirs"}),
        (["text"], {"text"}),
        (["--error", "unreadable"], {*LOST}),
        ([], {*LOST, "theirs"}),
    ],
    ids=["by status", "by id", "by error", "all"],
)
def test_export_shows_all_that_was_found(
    office: ShopFile, words: list[str], shown: set[str]
) -> None:
    done = office("documents", "export", "messages", *words)
    assert done.exit_code == 0, done.output
    found = {each["_id"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == shown
    for one in shown & LOST.keys():
        assert found[one][UNREADABLE] == LOST[one]
        assert found[one]["lastError"]["type"] == "unreadable"


def test_stuck_counts_them_as_nobodys(office: ShopFile, caplog: pytest.LogCaptureFixture) -> None:
    done = office("documents", "stuck", "messages")
    assert done.exit_code == 0, done.output
    assert "3 foreign" in done.output
    assert "messages: 2 documents are left alone, for nobody can read them" in caplog.text


@pytest.mark.parametrize("decision", ["reset", "archive"])
def test_nothing_but_removing_it_is_accepted(office: ShopFile, decision: str) -> None:
    done = office("documents", decision, "messages", "text")
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert "text was refused: nobody can read it, for it is no document" in done.output


def test_it_is_purged_by_its_id(office: ShopFile) -> None:
    looked = office("documents", "purge", "messages", "text", "--dry-run")
    assert "unreadable" in looked.output
    assert "Nothing was changed" in looked.output
    done = office("documents", "purge", "messages", "text", "--yes")
    assert done.exit_code == 0, done.output
    assert "1 of 1 document of messages removed for good" in done.output
    left = office("documents", "export", "messages", "text", "list")
    assert [json.loads(line)["_id"] for line in left.stdout.splitlines()] == ["list"]


def test_purging_all_that_was_given_up_does_not_touch_it(office: ShopFile) -> None:
    office("documents", "purge", "messages", "--all", "--yes")
    left = office("documents", "export", "messages", "--error", "unreadable")
    assert len(left.stdout.splitlines()) == len(LOST)


def test_where_nothing_can_be_read_the_collection_is_there_all_the_same(office: ShopFile) -> None:
    done = office("documents", "stuck", "letters")
    assert (done.exit_code, "There is no document in letters" in done.output) == (1, True)
    with sqlite3.connect(office.path) as file:
        file.execute("update headway_documents set collection = 'letters' where id = 'text'")
    file.close()
    done = office("documents", "stuck", "letters")
    assert (done.exit_code, "There is no document" in done.output) == (0, False), done.output
    assert "1 foreign" in done.output


def test_they_are_counted_too_where_a_flag_says_what_is_processed(
    office: ShopFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"flagged_{office.folder.name.replace('-', '_')}"
    (office.folder / f"{module}.py").write_text(
        "from headway import Lifecycle, Service\n"
        'reading = Service("reading", lifecycles=[Lifecycle("messages", flag="read")])\n'
    )
    monkeypatch.syspath_prepend(office.folder)
    office.put("messages", "done", read=True)
    done = office("documents", "stuck", "messages", "--service", f"{module}:reading")
    assert done.exit_code == 0, done.output
    assert "     2 foreign: " in done.output  # whatever the status of the others is
    everything = ("--status", "foreign", "--service", f"{module}:reading")
    found = office("documents", "export", "messages", *everything).stdout.splitlines()
    assert {json.loads(line)["_id"] for line in found} == LOST.keys()
