"""`headway failed` on a real file."""

import json
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shops import COMMAND, NASTY, WITH_CTRL_C, ShopFile, asked, unprintable

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
    found = shop.json("failed", "inspect", "parsing", "--limit", "1000")
    return [letter["letter_id"] for letter in found]


def test_dead_letters_are_counted_and_inspected(shop: ShopFile) -> None:
    shop.fill(*bad(3))
    found = shop.json("failed", "list")
    counts = [(each["queue"], each["letters"]) for each in found]
    assert counts == [("chunking.failed", 0), ("parsing.failed", 3)]
    assert found[1]["oldest"] <= found[1]["newest"]
    shown = [line.split()[:2] for line in shop("failed", "list").stdout.splitlines()]
    assert ["parsing.failed", "3"] in shown
    for queue in ("parsing", "parsing.failed", "archives.failed"):
        letters = shop.json("failed", "inspect", queue)
        assert len({letter["letter_id"] for letter in letters}) == 3
    assert set(letters[0]) >= DOCUMENTED
    assert letters[0]["original_event"]["data"] == {"bad": "archive-0"}
    assert (letters[0]["version"], letters[0]["attempts"][0]["version"]) == ("v7", "v7")


def test_inspect_shows_pages_and_tracebacks_when_asked_to(shop: ShopFile) -> None:
    long = " ".join(["a long story"] * 20)
    shop.fill({"bad": long}, *bad(2))
    said = shop("failed", "inspect", "parsing", "--limit", "2").stdout
    assert said.count("version    v7") == 2
    assert "python.validation" in said
    assert "Traceback" not in said
    second = ids(shop)[1]
    assert f"--after {second}" in said
    rest = shop("failed", "inspect", "parsing", "--after", second, "--traceback").stdout
    assert rest.count("Traceback (most recent call last):") == 1
    # Lines are not wrapped for another program.
    said = shop.typed("failed", "inspect", "parsing", "--traceback").stdout
    assert f"       ValueError: bad archive: {long}" in said.splitlines()


def test_nothing_in_a_dead_letter_speaks_to_the_terminal(shop: ShopFile) -> None:
    shop.fill({"bad": NASTY}, raw=b"not json \x1b[2J \x9b")
    for words in (("inspect", "parsing"), ("inspect", "parsing", "--json"), ("export", "parsing")):
        said = shop("failed", *words).stdout
        assert said
        assert unprintable(said) == []


def test_an_unknown_queue_is_refused_with_the_close_ones(shop: ShopFile) -> None:
    shop.fill(*bad(1))
    for verb in ("inspect", "requeue", "export", "purge"):
        done = shop.typed("failed", verb, "parsin.failed")
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert "parsing.failed?" in done.stderr


def test_requeue_sends_again_and_the_work_is_done_once(shop: ShopFile) -> None:
    shop.fill(*bad(3))
    dry = shop("failed", "requeue", "parsing", "--dry-run")
    assert "3 to parsing.archive.ingested" in dry.stdout
    assert len(ids(shop)) == 3
    some = shop("failed", "requeue", "parsing", "--id", ids(shop)[1], "--rate", "100")
    assert (some.exit_code, len(ids(shop))) == (0, 2)
    shop("failed", "requeue", "parsing", "--error-type", "ValueError")
    shop.work()
    assert sorted(each["bad"] for each in shop.effects) == [f"archive-{n}" for n in range(3)]
    assert ids(shop) == []
    assert shop("verify").exit_code == 0


@pytest.mark.parametrize(
    "command",
    ["inspect", "inspect --json", "requeue", "requeue --dry-run", "purge --yes", "purge", "export"],
)
def test_an_error_type_that_no_dead_letter_has_is_told_with_those_that_there_are(
    shop: ShopFile, command: str
) -> None:
    shop.fill(*bad(2), raw=b"no event")
    verb, *options = command.split()
    for given, meant in (("ValueEror", "ValueError?"), ("Nope", "MalformedEventError, ValueError")):
        done = shop("failed", verb, "parsing", "--error-type", given, *options)
        assert done.exit_code == 0
        assert given in done.stderr
        assert meant in done.stderr
        assert "ValueError" not in done.stdout
    assert len(ids(shop)) == 3
    known = shop("failed", verb, "parsing", "--error-type", "ValueError", *options, "--dry-run")
    assert "Malformed" not in known.stderr


def test_a_change_leaves_a_record_where_there_is_no_terminal(shop: ShopFile) -> None:
    shop.fill(*bad(2))
    record = json.loads(shop.typed("failed", "requeue", "parsing", "--limit", "1").stderr)
    assert record["logger"] == "headway.operator"
    assert (record["change"], record["failed_queue"], record["letters"]) == (
        *("requeue", "parsing.failed", 1),
    )
    assert record["filters"] == "limit=1"
    assert record["operator"]


def test_what_is_sent_to_another_queue_is_not_missed_in_the_old_one(shop: ShopFile) -> None:
    shop.fill(*bad(2))
    done = shop("failed", "requeue", "parsing", "--target-queue", "nobody.there")
    assert (done.exit_code, done.stdout.count("nobody.there")) == (1, 2)
    assert len(ids(shop)) == 2
    with sqlite3.connect(shop.path) as file:  # from now on that queue takes the type, too
        file.execute(
            "insert into headway_bindings values ('ArchiveIngested', 'chunking.json.parsed')"
        )
    file.close()
    done = shop("failed", "requeue", "parsing", "--target-queue", "chunking.json.parsed")
    assert (done.exit_code, "  2 to chunking.json.parsed" in done.stdout) == (0, True)
    assert shop("verify").exit_code == 0
    shop.work()
    found = shop.json("failed", "inspect", "chunking")
    assert [letter["abandoned_reason"] for letter in found] == ["unroutable"] * 2
    assert shop("verify").exit_code == 0
    back = shop("failed", "requeue", "chunking", "--target-queue", "parsing.archive.ingested")
    assert (back.exit_code, shop("verify").exit_code) == (0, 0)
    shop.work()
    assert sorted(each["bad"] for each in shop.effects) == ["archive-0", "archive-1"]
    verified = shop.json("verify")
    assert (verified["verdict"], verified["places"]["done"], verified["accepted"]) == ("ok", 4, 4)


def test_an_export_is_json_lines_and_replaces_a_file_only_if_told_to(shop: ShopFile) -> None:
    shop.fill(*bad(120))
    there = ids(shop)
    shown = [json.loads(line) for line in shop("failed", "export", "parsing").stdout.splitlines()]
    target = shop.folder / "letters.jsonl"
    target.write_text("precious")
    export = ("failed", "export", "parsing", "--output")
    refused = shop.typed(*export, "letters.jsonl")
    assert (refused.returncode, "--force" in refused.stderr) == (2, True)
    assert target.read_text() == "precious"
    assert shop.typed(*export, "letters.jsonl", "--force").returncode == 0
    written = [json.loads(line) for line in target.read_text().splitlines()]
    assert [each["letter_id"] for each in written] == there == ids(shop)
    assert written == shown
    assert all(set(each) >= DOCUMENTED for each in written)
    assert [each.name for each in shop.folder.glob("*letters*")] == [target.name]
    missing = shop.typed(*export, "no/such/folder")
    assert (missing.returncode, "Traceback" in missing.stderr) == (2, False)


@pytest.mark.parametrize("yes", ["--yes", "--confirm"])
def test_a_purge_removes_what_was_meant_and_only_if_it_is_confirmed(
    shop: ShopFile, yes: str
) -> None:
    shop.fill(*bad(3))
    there = ids(shop)
    done = shop.typed("failed", "purge", "parsing")
    assert (done.returncode, "--yes" in done.stderr) == (2, True)
    assert shop("failed", "purge", "parsing", "--dry-run").exit_code == 0
    assert ids(shop) == there
    assert shop("failed", "purge", "parsing", "--limit", "2", yes).exit_code == 0
    assert ids(shop) == there[2:]
    gone = shop("failed", "purge", "parsing", "--id", there[0], "--id", there[2], yes)
    assert (gone.exit_code, there[0] in gone.stdout) == (1, True)
    assert ids(shop) == []
    assert shop("verify").exit_code == 0


@pytest.mark.parametrize(
    ("answer", "code", "left"),
    [(b"y\n", 0, 0), (b"n\n", 1, 2), (b"\n", 1, 2), (signal.SIGINT, 130, 2)],
    ids=["yes", "no", "enter", "Ctrl-C"],
)
def test_a_person_at_a_terminal_is_asked(
    shop: ShopFile, answer: bytes | signal.Signals, code: int, left: int
) -> None:
    shop.fill(*bad(2))
    ended, said = asked(shop.folder, "failed", "purge", "parsing", answer=answer)
    assert (ended, len(ids(shop))) == (code, left)
    assert "2 letters of parsing.failed" in said
    assert "Traceback" not in said
    assert len(shop.json("failed", "history")) == (left == 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_stopped_says_how_far_it_got(
    shop: ShopFile, number: signal.Signals, code: int
) -> None:
    shop.fill(*bad(40))
    command = [*WITH_CTRL_C, *COMMAND, "failed", "requeue", "parsing"]
    with subprocess.Popen(
        [*command, "--rate", "20"], cwd=shop.folder, stderr=subprocess.PIPE, text=True
    ) as process:
        while len(ids(shop)) > 37:
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    left = len(ids(shop))
    assert process.returncode == code
    assert f"{40 - left} of 40" in said
    assert "Traceback" not in said


LETTERS = 400


class Killed:
    """Commands on a file of dead letters, none of which gets to its end."""

    def __init__(self, shop: ShopFile, seed: int) -> None:
        self.shop = shop
        shop.fill(*bad(LETTERS))
        self.dice = random.Random(seed)
        self.hits = 0

    def left(self) -> int:
        with closing(sqlite3.connect(self.shop.path)) as file:
            (count,) = file.execute("select count(*) from headway_letters").fetchone()
        return int(count)

    def kill(self, *words: str) -> None:
        """Start a command, and kill it when it has begun to change something."""
        before = self.left()
        few = before - self.dice.randint(1, 40)
        with subprocess.Popen(
            [*COMMAND, "failed", *words],
            cwd=self.shop.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            while self.left() > few and process.poll() is None:
                time.sleep(0.0005)
            time.sleep(self.dice.random() * 0.004)
            process.send_signal(signal.SIGKILL)
        after = self.left()
        self.hits += process.returncode == -signal.SIGKILL and 0 < after < before
        assert self.shop("verify").exit_code == 0


def test_a_requeue_that_is_killed_is_completed_by_the_next_one(shop: ShopFile) -> None:
    killed = Killed(shop, 1)
    for number in range(6):
        # One commit for each dead letter, or one for fifty.
        killed.kill("requeue", "parsing", *(("--rate", "2000") if number % 2 else ()))
        if number == 3:
            shop.work()
    assert killed.hits >= 3, f"only {killed.hits} of 6 were killed in the middle"
    assert shop("failed", "requeue", "parsing").exit_code == 0
    shop.work()
    expected = {f"archive-{n}": 1 for n in range(LETTERS)}
    assert Counter(each["bad"] for each in shop.effects) == expected
    assert Counter(each["bad"] for each in shop.documents("parsed")) == expected
    assert (killed.left(), shop("verify").exit_code) == (0, 0)


def test_a_purge_that_is_killed_is_completed_by_the_next_one(shop: ShopFile) -> None:
    killed = Killed(shop, 2)
    for _ in range(3):
        if killed.left():
            killed.kill("purge", "parsing", "--yes")
    assert killed.hits, "none was killed in the middle"
    assert shop("failed", "purge", "parsing", "--yes").exit_code == 0
    shop.work()
    assert (shop.effects, killed.left()) == ([], 0)
    found = shop.json("verify")
    assert (found["verdict"], found["purged"]) == ("ok", LETTERS)
