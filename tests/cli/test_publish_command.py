"""`headway publish` on a real file."""

import json
import os
import re
import resource
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.shops import COMMAND, WITH_CTRL_C, ShopFile


@pytest.fixture
def shop(tmp_path: Path) -> ShopFile:
    shop = ShopFile(tmp_path)
    shop.work()
    return shop


def test_an_event_is_published_and_handled_once_for_each_id(shop: ShopFile) -> None:
    given = '{"archive": "ä", "sum": 1e2}'
    for _ in range(2):
        done = shop.typed("publish", "ArchiveIngested", given, "--event-id", "mine")
        assert (done.returncode, done.stderr) == (0, "")
        assert "mine" in done.stdout
    shop.work()
    assert shop.effects == [{"archive": "ä", "sum": 100.0}]


@pytest.mark.parametrize("count", [1, 2, 1200])
def test_many_events_stand_on_a_line_each(shop: ShopFile, count: int) -> None:
    events = ({"n": n, "text": "\u2028"} for n in range(count))
    lines = "\n".join(json.dumps(event, ensure_ascii=False) for event in events)
    assert shop("publish", "ArchiveIngested", "-", stdin=f"{lines}\n\n").exit_code == 0
    shop.work()
    assert sorted(each["n"] for each in shop.effects) == list(range(count))


def test_one_event_may_fill_many_lines(shop: ShopFile) -> None:
    assert shop("publish", "ArchiveIngested", "-", stdin='{\n  "n":\n  1\n}\n').exit_code == 0
    shop.work()
    assert shop.effects == [{"n": 1}]


def test_raw_bytes_go_as_they_are_and_are_never_lost(shop: ShopFile) -> None:
    assert shop("publish", "ArchiveIngested", "-", "--raw", stdin=b"\xff\x00 no").exit_code == 0
    shop.work()
    (letter,) = shop.json("failed", "inspect", "parsing")
    assert (letter["abandoned_reason"], letter["original_base64"]) == ("malformed", "/wAgbm8=")


REFUSED = {
    "no JSON": ('{"a": 1,}', "line 1, column 9"),
    "the second line": ('{"a": 1}\n{"b" 2}\n', "line 2, column 6"),
    "within one object": ('{\n  "a": x\n}', "line 2, column 8"),
    "nothing": ("", "line 1, column 1"),
    "no object": ("[1]", "object"),
    "NaN": ('{"a": NaN}', "NaN"),
    "a field twice": ('{"a": [{"b": 1, "b": 2}]}', "'b'"),
    "half a character": ('{"a": "\\ud800"}', "standard input"),
    "too deep": ("[" * 100_000, "too deep"),
    "one id for many": ('{"a":1}\n{"a":2}\n', "--event-id"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_json_is_refused_with_its_place_and_nothing_is_published(
    shop: ShopFile, case: str
) -> None:
    given, why = REFUSED[case]
    options = ("--event-id", "x") if case == "one id for many" else ()
    done = shop.typed("publish", "ArchiveIngested", "-", *options, stdin=given)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert why in done.stderr
    assert shop.json("verify")["accepted"] == 0


@pytest.mark.parametrize("there", [True, False])
def test_an_event_that_no_service_takes_is_kept_and_the_command_says_where(
    tmp_path: Path, *, there: bool
) -> None:
    shop = ShopFile(tmp_path)
    if there:
        shop.work()
    done = shop.typed("publish", "ArchiveIngestd", "-", "--event-id", "a-1", stdin='{"good": 1}')
    assert (done.returncode, done.stderr) == (0, "")
    assert f"unrouted on {shop.url}" in done.stdout
    assert ("ArchiveIngested?" in done.stdout) is there
    assert shop.typed("publish", "NoSuchType", "-", stdin='{"a":1}\n{"a":2}\n').returncode == 0
    found = shop.json("verify")
    assert (found["verdict"], found["accepted"], found["places"]["unrouted"]) == ("ok", 3, 3)


def test_ctrl_c_says_how_far_it_got(shop: ShopFile) -> None:
    words = ("publish", "Late", "-")
    command = [*WITH_CTRL_C, *COMMAND, *words]
    with subprocess.Popen(
        command, cwd=shop.folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        process.stdin.write("{}\n" * 50_000)
        process.stdin.close()
        process.stdin = None
        with closing(sqlite3.connect(shop.path)) as file:
            count = "select count(*) from headway_unrouted"
            # More than one group: the command has then been told of the first.
            while file.execute(count).fetchone()[0] < 1_000:
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
            (stored,) = file.execute(count).fetchone()
    assert process.returncode == 130
    told = re.fullmatch(r"stopped: (\d+) of 50000 .*\n", said)
    assert told is not None, said
    assert 0 < int(told[1]) <= stored < 50_000


def test_a_full_disk_says_how_many_events_were_stored(tmp_path: Path) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))

    done = subprocess.run(
        [*COMMAND, "publish", "Late", "-"],
        input="\n".join(json.dumps({"n": n, "text": "x" * 500}) for n in range(4_000)),
        env={
            **os.environ,
            "HEADWAY_BUS": f"sqlite:///{tmp_path}/full.db",
            "PYTHONDONTWRITEBYTECODE": "1",  # see test_files_and_pipes.py
        },
        cwd=tmp_path,
        preexec_fn=no_room,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {2, 3}
    said = re.search(r"(\d+) of 4000 events", done.stderr)
    assert said is not None, done.stderr
    with closing(sqlite3.connect(tmp_path / "full.db")) as file:
        (stored,) = file.execute("select count(*) from headway_unrouted").fetchone()
    assert stored == int(said[1]) > 0
