"""`headway publish` on a real file."""

import json
import os
import re
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headway.apps.cli import sending
from tests.cli.shops import ShopFile


@pytest.fixture
def shop(tmp_path: Path) -> ShopFile:
    shop = ShopFile(tmp_path)
    shop.work()
    return shop


def test_an_event_is_published_and_handled(shop: ShopFile) -> None:
    done = shop.typed("publish", "ArchiveIngested", '{"archive": "ä", "sum": 1e2}')
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Published event ")
    shop.work()
    assert shop.effects == [{"archive": "ä", "sum": 100.0}]


def test_an_event_id_is_recognised_the_second_time(shop: ShopFile) -> None:
    for _ in range(2):
        done = shop("publish", "ArchiveIngested", '{"n": 1}', "--event-id", "mine")
        assert done.stdout == f"Published event mine to 1 queue on sqlite:///{shop.path}.\n"
    shop.work()
    assert shop.effects == [{"n": 1}]


@pytest.mark.parametrize("count", [1, 2, 1200])
def test_many_events_stand_on_a_line_each(shop: ShopFile, count: int) -> None:
    lines = "\n".join(
        json.dumps({"n": n, "text": "\u2028"}, ensure_ascii=False) for n in range(count)
    )
    done = shop("publish", "ArchiveIngested", "-", stdin=f"{lines}\n\n")
    assert done.exit_code == 0
    shop.work()
    assert sorted(each["n"] for each in shop.effects) == list(range(count))


def test_one_event_may_fill_many_lines(shop: ShopFile) -> None:
    assert shop("publish", "ArchiveIngested", "-", stdin='{\n  "n":\n  1\n}\n').exit_code == 0
    shop.work()
    assert shop.effects == [{"n": 1}]


def test_raw_bytes_go_as_they_are_and_are_never_lost(shop: ShopFile) -> None:
    assert shop("publish", "ArchiveIngested", "-", "--raw", stdin=b"\xff\x00 no").exit_code == 0
    shop.work()
    (letter,) = json.loads(shop("failed", "inspect", "parsing", "--json").stdout)
    assert (letter["abandoned_reason"], letter["original_base64"]) == ("malformed", "/wAgbm8=")


REFUSED = {
    "no JSON": ('{"a": 1,}', "JSON is not accepted: line 1, column 9"),
    "the second line": ('{"a": 1}\n{"b" 2}\n', "standard input is not accepted: line 2, column 6"),
    "within one object": ('{\n  "a": x\n}', "standard input is not accepted: line 2, column 8"),
    "nothing": ("", "line 1, column 1"),
    "no object": ("[1]", "data is a JSON object"),
    "NaN": ('{"a": NaN}', "NaN is no JSON"),
    "a field twice": ('{"a": [{"b": 1, "b": 2}]}', "the field 'b' is there twice"),
    "half a character": ('{"a": "\\ud800"}', "is not accepted"),
    "too deep": ("[" * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_json_is_refused_with_its_place_and_nothing_is_published(
    shop: ShopFile, case: str
) -> None:
    given, words = REFUSED[case]
    if case == "no JSON":
        done = shop.typed("publish", "ArchiveIngested", given)
    else:
        done = shop.typed("publish", "ArchiveIngested", "-", stdin=given)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert json.loads(shop("verify", "--json").stdout)["accepted"] == 0


def test_one_id_for_many_events_is_refused(shop: ShopFile) -> None:
    done = shop.typed(
        "publish", "ArchiveIngested", "-", "--event-id", "x", stdin='{"a":1}\n{"a":2}\n'
    )
    assert done.returncode == 2
    assert "--event-id" in done.stderr


@pytest.mark.parametrize("there", [True, False])
def test_an_event_that_no_service_takes_is_kept_and_the_command_says_where(
    tmp_path: Path, *, there: bool
) -> None:
    shop = ShopFile(tmp_path)
    if there:
        shop.work()
    done = shop.typed("publish", "ArchiveIngestd", "-", "--event-id", "a-1", stdin='{"good": 1}')
    assert (done.returncode, done.stderr) == (0, "")
    where = shop.url + " (a new file)" * (not there)
    hint = " Did you mean ArchiveIngested?" if there else ""
    assert done.stdout == (
        "Published event a-1 to no queue: no service takes ArchiveIngestd yet. It is kept as "
        f"unrouted on {where} until one does.{hint}\n"
    )
    many = shop.typed("publish", "NoSuchType", "-", stdin='{"a":1}\n{"a":2}\n')
    assert many.stdout.startswith(
        "Published 2 events to no queue: no service takes NoSuchType yet. They are kept as unrouted"
    )
    found = json.loads(shop("verify", "--json").stdout)
    assert (found["verdict"], found["accepted"], found["places"]["unrouted"]) == ("ok", 3, 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{}", "stopped: event order-1 may have been published, or not\n"),
        ("{}\n{}\n", "stopped: 0 of 2 events were published, and perhaps the next few\n"),
    ],
)
def test_ctrl_c_says_how_far_it_got(
    shop: ShopFile, monkeypatch: pytest.MonkeyPatch, given: str, said: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sending, "on_engine", interrupted)
    named = ["--event-id", "order-1"] if given == "{}" else []
    done = shop("publish", "ArchiveIngested", "-", *named, stdin=given)
    assert (done.exit_code, done.stderr) == (130, said)


def test_full_disk_says_how_many_events_were_stored(tmp_path: Path) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))

    lines = "\n".join(json.dumps({"n": n, "text": "x" * 500}) for n in range(4_000))
    done = subprocess.run(
        [sys.executable, "-m", "headway.apps.cli", "publish", "Late", "-"],
        input=lines,
        env={**os.environ, "HEADWAY_BUS": f"sqlite:///{tmp_path}/full.db"},
        cwd=tmp_path,
        preexec_fn=no_room,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {2, 3}
    said = re.search(r"(\d+) of 4000 events were published", done.stderr)
    assert said is not None, done.stderr
    with closing(sqlite3.connect(tmp_path / "full.db")) as file:
        (stored,) = file.execute("select count(*) from headway_unrouted").fetchone()
    assert stored == int(said[1]) > 0
