"""`headway publish` on a real file."""

import json
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
        assert done.stdout == "Published event mine to 1 queue.\n"
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
def test_a_type_that_nobody_handles_says_what_to_start(tmp_path: Path, *, there: bool) -> None:
    shop = ShopFile(tmp_path)
    if there:
        shop.work()
    done = shop.typed("publish", "NobodyTakesThis", "{}")
    assert done.returncode == 1
    assert "no service that handles NobodyTakesThis has been started" in done.stderr
    assert "headway run MODULE:SERVICE" in done.stderr
    assert shop.path.exists() == there


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
