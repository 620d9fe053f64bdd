"""`headway failed` on a real file, through its front door."""

import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shops import NASTY, ShopFile

DOCUMENTED = {
    "original_event",
    "idempotency_key",
    "attempt_count",
    "last_error",
    "error_type",
    "abandoned_reason",
    "service_name",
    "timestamp",
}


@pytest.fixture
def shop(tmp_path: Path) -> ShopFile:
    return ShopFile(tmp_path)


def bad(count: int) -> list[dict[str, Any]]:
    return [{"bad": f"archive-{n}"} for n in range(count)]


def ids(shop: ShopFile) -> list[str]:
    found = json.loads(shop("failed", "inspect", "parsing", "--json", "--limit", "1000").stdout)
    return [letter["letter_id"] for letter in found]


def test_list_counts_the_letters_of_each_queue(shop: ShopFile) -> None:
    shop.fill(*bad(3))
    lines = shop("failed", "list").stdout.splitlines()
    assert lines[0].split() == ["queue", "letters", "oldest", "newest"]
    assert [line.split()[:2] for line in lines[2:]] == [
        ["chunking.failed", "0"],
        ["parsing.failed", "3"],
    ]
    found = json.loads(shop("failed", "list", "--json").stdout)
    assert [(each["queue"], each["letters"]) for each in found] == [
        ("chunking.failed", 0),
        ("parsing.failed", 3),
    ]
    assert found[1]["oldest"] <= found[1]["newest"]


def test_inspect_shows_a_case_file_for_each_letter(shop: ShopFile) -> None:
    shop.fill(*bad(3))
    said = shop("failed", "inspect", "parsing.failed", "--limit", "2").stdout
    assert said.count("Letter ") == 2
    assert "non_retryable, after 0 retries" in said
    assert "ValueError: bad archive: archive-0" in said
    assert '"bad": "archive-0"' in said
    assert "python.validation" in said
    assert said.count("version    v7") == 2
    assert ", version v7, by the rule" in said
    assert "Traceback" not in said
    assert f"--after {ids(shop)[1]}" in said
    rest = shop("failed", "inspect", "parsing", "--after", ids(shop)[1], "--traceback").stdout
    assert rest.count("Letter ") == 1
    assert "Traceback (most recent call last):" in rest
    assert "No letter there fits" in shop("failed", "inspect", "parsing", "--id", "xxxx").stdout


def test_lines_are_not_wrapped_for_another_program(shop: ShopFile) -> None:
    long = " ".join(["a long story"] * 20)
    shop.fill({"bad": long})
    said = shop.typed("failed", "inspect", "parsing", "--traceback").stdout
    assert f"       ValueError: bad archive: {long}" in said.splitlines()


def test_inspect_as_json_has_the_documented_fields(shop: ShopFile) -> None:
    shop.fill(*bad(2))
    found = json.loads(shop("failed", "inspect", "archives.failed", "--json").stdout)
    assert len({letter["letter_id"] for letter in found}) == 2
    assert set(found[0]) >= DOCUMENTED
    assert found[0]["original_event"]["data"] == {"bad": "archive-0"}
    assert (found[0]["version"], found[0]["attempts"][0]["version"]) == ("v7", "v7")


@pytest.mark.parametrize("words", [("inspect", "parsing"), ("inspect", "parsing", "--json")])
def test_nothing_in_a_letter_speaks_to_the_terminal(shop: ShopFile, words: tuple[str, ...]) -> None:
    shop.fill({"bad": NASTY}, raw=b"not json \x1b[2J \x9b")
    said = shop("failed", *words).stdout
    assert said
    assert [one for one in said if not one.isprintable() and one != "\n"] == []
    export = shop("failed", "export", "parsing").stdout
    assert [one for one in export if not one.isprintable() and one != "\n"] == []


def test_an_unknown_queue_is_refused_with_the_close_ones(shop: ShopFile) -> None:
    shop.fill(*bad(1))
    for verb in ("inspect", "requeue", "export", "purge"):
        done = shop.typed("failed", verb, "parsin.failed")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(
            "headway: queue='parsin.failed' does not exist: did you mean parsing.failed? There are"
        )
        assert "chunking.failed, parsing.failed" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_file_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    shop = ShopFile(tmp_path)
    done = shop.typed("failed", "list")
    assert done.returncode == 2
    assert f"There is no {tmp_path / 'headway.db'}" in done.stderr
    assert "headway run" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_requeue_sends_again_and_the_work_is_done_once(shop: ShopFile) -> None:
    shop.fill(*bad(3))
    dry = shop("failed", "requeue", "parsing", "--dry-run")
    assert dry.stdout.splitlines() == [
        "3 of 3 letters of parsing.failed would be requeued",
        "  3 to parsing.archive.ingested",
    ]
    assert len(ids(shop)) == 3
    some = shop("failed", "requeue", "parsing", "--id", ids(shop)[1], "--rate", "100")
    assert (some.exit_code, some.stdout.splitlines()[0]) == (
        0,
        "1 of 1 letter of parsing.failed requeued",
    )
    shop("failed", "requeue", "parsing", "--error-type", "ValueError")
    shop.work()
    assert sorted(each["bad"] for each in shop.effects) == [f"archive-{n}" for n in range(3)]
    assert ids(shop) == []
    assert shop("verify").exit_code == 0


@pytest.mark.parametrize(
    "command",
    ["inspect", "inspect --json", "requeue", "requeue --dry-run", "purge --yes", "purge", "export"],
)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ValueEror", "did you mean ValueError? There are: MalformedEventError, ValueError."),
        ("Nope", "there are: MalformedEventError, ValueError."),
    ],
)
def test_an_error_type_that_no_dead_letter_has_is_said_with_those_that_there_are(
    shop: ShopFile, command: str, given: str, said: str
) -> None:
    shop.fill(*bad(2), raw=b"no event")
    verb, *options = command.split()
    done = shop("failed", verb, "parsing", "--error-type", given, *options)
    assert done.exit_code == 0
    assert done.stderr.splitlines()[-1] == (
        f"No dead letter of parsing.failed has the error type {given}: {said}"
    )
    if options == ["--json"]:
        assert json.loads(done.stdout) == []
    elif verb in {"inspect", "export"}:
        assert done.stdout == ""
    assert len(ids(shop)) == 3


@pytest.mark.parametrize("verb", ["inspect", "requeue", "purge", "export"])
def test_of_an_error_type_that_some_have_nothing_more_is_said(shop: ShopFile, verb: str) -> None:
    shop.fill(*bad(2))
    options = ["--error-type", "ValueError"] + ["--yes"] * (verb == "purge")
    assert "error type" not in shop("failed", verb, "parsing", *options).stderr


def test_an_empty_failed_queue_has_no_error_type(shop: ShopFile) -> None:
    shop.fill({"good": 1})
    done = shop("failed", "requeue", "parsing", "--error-type", "ValueError")
    assert done.exit_code == 0
    assert done.stderr.splitlines()[-1] == "No dead letter is in parsing.failed."


def test_a_dead_letter_that_is_named_and_has_another_error_is_skipped_and_not_explained_twice(
    shop: ShopFile,
) -> None:
    shop.fill(*bad(1))
    done = shop("failed", "requeue", "parsing", "--id", ids(shop)[0], "--error-type", "Nope")
    assert done.exit_code == 1
    assert "its last error is ValueError, not Nope" in done.stdout
    assert "No dead letter" not in done.stderr


def test_a_requeue_leaves_a_record_where_nobody_sits_at_a_terminal(shop: ShopFile) -> None:
    shop.fill(*bad(2))
    done = shop.typed("failed", "requeue", "parsing", "--limit", "1")
    record = json.loads(done.stderr)
    assert record["logger"] == "headway.operator"
    assert (record["change"], record["failed_queue"], record["letters"]) == (
        "requeue",
        "parsing.failed",
        1,
    )
    assert record["filters"] == "limit=1"
    assert record["operator"]


def test_what_is_skipped_is_said_and_the_exit_code_is_1(shop: ShopFile) -> None:
    shop.fill(*bad(2))
    done = shop("failed", "requeue", "parsing", "--target-queue", "nobody.there")
    assert done.exit_code == 1
    assert "0 of 2 letters of parsing.failed requeued" in done.stdout
    assert done.stdout.count("was skipped: queue='nobody.there'") == 2
    assert len(ids(shop)) == 2


def test_what_is_sent_to_another_queue_is_not_missed_in_the_old_one(shop: ShopFile) -> None:
    shop.fill(*bad(2))
    with sqlite3.connect(shop.path) as file:  # from now on that queue takes the type, too
        file.execute(
            "insert into headway_bindings values ('ArchiveIngested', 'chunking.json.parsed')"
        )
    file.close()
    target = ("--target-queue", "chunking.json.parsed")
    dry = shop("failed", "requeue", "parsing", *target, "--dry-run")
    assert "  2 to another queue than before: what that queue has had itself" in dry.stdout
    done = shop("failed", "requeue", "parsing", *target)
    assert "another queue" not in done.stdout
    assert (done.exit_code, "  2 to chunking.json.parsed" in done.stdout) == (0, True)
    assert shop("verify").exit_code == 0
    shop.work()
    found = json.loads(shop("failed", "inspect", "chunking", "--json").stdout)
    assert [letter["abandoned_reason"] for letter in found] == ["unroutable"] * 2
    assert shop("verify").exit_code == 0
    back = shop("failed", "requeue", "chunking", "--target-queue", "parsing.archive.ingested")
    assert (back.exit_code, shop("verify").exit_code) == (0, 0)
    shop.work()
    assert sorted(each["bad"] for each in shop.effects) == ["archive-0", "archive-1"]
    verified = json.loads(shop("verify", "--json").stdout)
    assert (verified["verdict"], verified["places"]["done"], verified["accepted"]) == ("ok", 4, 4)


def test_what_is_superseded_is_shown_and_skipped_unless_one_insists(shop: ShopFile) -> None:
    shop.work()
    for one in "ab":
        shop.put("messages", one, status="pending")
    shop.fill(*({"message_doc_ids": [one]} for one in "ab"), event_type="JSONParsed")
    shop.put("messages", "a", status="pending", lastOperation="swept")
    listed = json.loads(shop("failed", "list", "--json").stdout)
    assert [each["superseded"] for each in listed] == [1, 0]
    assert "superseded: 1 letter of chunking.failed" in shop("failed", "list").stdout
    found = json.loads(shop("failed", "inspect", "chunking", "--json").stdout)
    assert [(each["document_ids"], each["superseded"]) for each in found] == [
        (["a"], True),
        (["b"], False),
    ]
    said = shop("failed", "inspect", "chunking").stdout
    assert said.count("superseded") == 1
    assert "documents  messages: b" in said
    done = shop("failed", "requeue", "chunking")
    assert done.exit_code == 1
    assert "1 of 2 letters of chunking.failed requeued" in done.stdout
    assert f"{found[0]['letter_id']} was skipped: superseded: " in done.stdout
    shop.work()
    assert shop.effects == [{"message_doc_ids": ["b"]}]
    done = shop("failed", "requeue", "chunking", "--superseded")
    assert (done.exit_code, "1 of 1 letter" in done.stdout) == (0, True)
    shop.work()
    assert shop.effects == [{"message_doc_ids": ["b"]}, {"message_doc_ids": ["a"]}]
    assert shop("verify").exit_code == 0


def test_an_export_is_json_lines_with_every_field(shop: ShopFile, tmp_path: Path) -> None:
    shop.fill(*bad(120))
    there = ids(shop)
    shown = [json.loads(line) for line in shop("failed", "export", "parsing").stdout.splitlines()]
    target = tmp_path / "letters.jsonl"
    done = shop("failed", "export", "parsing", "--output", str(target))
    assert done.exit_code == 0
    written = [json.loads(line) for line in target.read_text().splitlines()]
    assert [each["letter_id"] for each in written] == there
    assert written == shown
    assert all(set(each) >= DOCUMENTED for each in written)
    assert ids(shop) == there
    assert [path.name for path in tmp_path.iterdir() if "letters" in path.name] == [target.name]


def test_an_export_replaces_a_file_only_if_told_to(shop: ShopFile, tmp_path: Path) -> None:
    shop.fill(*bad(1))
    (tmp_path / "x.jsonl").write_text("precious")
    done = shop.typed("failed", "export", "parsing", "--output", "x.jsonl")
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert (tmp_path / "x.jsonl").read_text() == "precious"
    done = shop.typed("failed", "export", "parsing", "--output", "x.jsonl", "--force")
    assert done.returncode == 0
    assert "archive-0" in (tmp_path / "x.jsonl").read_text()
    missing = shop.typed("failed", "export", "parsing", "--output", "no/such/folder")
    assert (missing.returncode, "Traceback" in missing.stderr) == (2, False)


def test_a_purge_asks_and_without_a_terminal_it_refuses(shop: ShopFile) -> None:
    shop.fill(*bad(3))
    done = shop.typed("failed", "purge", "parsing")
    assert done.returncode == 2
    assert "3 letters of parsing.failed" in done.stderr
    assert "--yes" in done.stderr
    assert len(ids(shop)) == 3
    assert "3 of 3 letters" in shop("failed", "purge", "parsing", "--dry-run").stdout
    assert len(ids(shop)) == 3


@pytest.mark.parametrize("yes", ["--yes", "--confirm"])
def test_a_purge_removes_what_was_meant(shop: ShopFile, yes: str) -> None:
    shop.fill(*bad(3))
    there = ids(shop)
    done = shop("failed", "purge", "parsing", "--limit", "2", yes)
    assert (done.exit_code, "2 of 2 letters of parsing.failed removed" in done.stdout) == (0, True)
    assert ids(shop) == there[2:]
    gone = shop("failed", "purge", "parsing", "--id", there[0], "--id", there[2], yes)
    assert gone.exit_code == 1
    assert f"{there[0]} is not in the queue" in gone.stdout
    assert ids(shop) == []
    assert shop("verify").exit_code == 0


@pytest.mark.parametrize(("answer", "left"), [(b"y\n", 0), (b"n\n", 2), (b"\n", 2)])
def test_a_person_at_a_terminal_is_asked(shop: ShopFile, answer: bytes, left: int) -> None:
    shop.fill(*bad(2))
    outer, inner = pty.openpty()
    command = [sys.executable, "-m", "headway.apps.cli", "failed", "purge", "parsing"]
    with subprocess.Popen(
        command, stdin=inner, stdout=inner, stderr=inner, cwd=shop.folder
    ) as process:
        os.close(inner)
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(outer, 1000)
        os.write(outer, answer)
        code = process.wait(timeout=60)
    os.close(outer)
    assert b"Remove 2 letters of parsing.failed for good?" in asked
    assert code == (0 if left == 0 else 1)
    assert len(ids(shop)) == left


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C reaches what the test starts, even if the tests run where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_at_the_question_ends_it_at_once(shop: ShopFile) -> None:
    shop.fill(*bad(2))
    outer, inner = pty.openpty()
    command = [sys.executable, "-m", "headway.apps.cli", "failed", "purge", "parsing"]
    with subprocess.Popen(
        command, stdin=inner, stdout=inner, stderr=inner, cwd=shop.folder
    ) as process:
        os.close(inner)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(outer, 1000)
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=30)
    said += os.read(outer, 10_000)
    os.close(outer)
    assert (code, len(ids(shop))) == (130, 2)
    assert b"stopped: nothing was changed" in said
    assert b"Traceback" not in said


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_command_that_is_stopped_says_how_far_it_got(
    shop: ShopFile, number: signal.Signals, code: int
) -> None:
    shop.fill(*bad(40))
    command = [sys.executable, "-m", "headway.apps.cli", "failed", "requeue", "parsing"]
    with subprocess.Popen(
        [*command, "--rate", "2"], cwd=shop.folder, stderr=subprocess.PIPE, text=True
    ) as process:
        while len(ids(shop)) > 37:
            time.sleep(0.05)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    left = len(ids(shop))
    assert process.returncode == code
    assert f"stopped: {40 - left} of 40 letters were requeued" in said
    assert f"the other {left} are still in parsing.failed" in said
    assert "Traceback" not in said
