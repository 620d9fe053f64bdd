"""`headway unrouted` on a real file."""

import asyncio
import signal
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway import connect
from tests.cli.shops import COMMAND, WITH_CTRL_C, ShopFile

THERE = {"ArchiveIngestd": 2, "ReportAsked": 1}


@pytest.fixture
def shop(tmp_path: Path) -> ShopFile:
    """A shop in which nothing has run yet, and events of two types wait."""
    shop = ShopFile(tmp_path)
    secret = ("ReportAsked", {"password": "hunter2"})
    publish(shop, [("ArchiveIngestd", {"good": 1})] * 2 + [secret])
    return shop


def publish(shop: ShopFile, events: Sequence[tuple[str, Any]]) -> None:
    async def run() -> None:
        async with connect(shop.url) as headway:
            ids = [f"event-{number}" for number in range(len(events))]
            await headway.publish_all(events, event_ids=ids)

    asyncio.run(run())


def listed(shop: ShopFile) -> dict[str, int]:
    return {each["event_type"]: each["events"] for each in shop.json("unrouted", "list")}


def bind(shop: ShopFile) -> None:
    """Have a queue take a type by hand: the engine itself leaves nothing unrouted then."""
    with closing(sqlite3.connect(shop.path)) as file, file:
        into = "insert into headway_bindings values ('ArchiveIngestd', 'parsing.archive.ingested')"
        file.execute(into)


def test_types_are_listed_with_what_was_meant(shop: ShopFile) -> None:
    shop.work()
    found = {each["event_type"]: each["meant"] for each in shop.json("unrouted", "list")}
    assert found == {"ArchiveIngestd": "ArchiveIngested", "ReportAsked": ""}
    shown = [line.split() for line in shop("unrouted", "list").stdout.splitlines()]
    assert [line[0] for line in shown if line[1:2] == ["2"]] == ["ArchiveIngestd"]


def test_events_are_shown_without_secrets(shop: ShopFile) -> None:
    words = ("unrouted", "show", "ReportAsked")
    assert "hunter2" not in shop(*words).stdout
    assert "hunter2" in shop(*words, "--raw").stdout
    (found,) = shop.json(*words)
    assert (found["event_id"], found["event"]["data"]) == ("event-2", {"password": "***"})
    assert len(shop.json("unrouted", "show", "--limit", "2")) == 2


def test_what_has_a_queue_by_now_is_routed_and_the_rest_is_named(shop: ShopFile) -> None:
    shop.work()
    bind(shop)
    assert shop("unrouted", "route", "--dry-run").exit_code in {0, 1}
    assert listed(shop) == THERE
    done = shop.typed("unrouted", "route", "--reason", "deployed")
    assert (done.returncode, "ReportAsked" in done.stdout) == (1, True)
    assert listed(shop) == {"ReportAsked": 1}
    assert shop.json("verify")["verdict"] == "ok"
    (entry,) = shop.json("unrouted", "history")
    expected = {
        "what": "route",
        "unrouted": "ArchiveIngestd",
        "reason": "deployed",
        "done": 2,
        "outcome": "complete",
    }
    assert entry.items() >= expected.items()
    assert "deployed" in shop("unrouted", "history").stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_route_that_is_interrupted_records_what_it_moved(tmp_path: Path, number: int) -> None:
    shop, events = ShopFile(tmp_path), 30_000
    shop.work()
    publish(shop, [("ArchiveIngestd", {})] * events)
    bind(shop)
    with closing(sqlite3.connect(shop.path)) as file:

        def left() -> int:
            return int(file.execute("select count(*) from headway_unrouted").fetchone()[0])

        command = [*WITH_CTRL_C, *COMMAND, "unrouted", "route"]
        with subprocess.Popen(command, cwd=shop.folder) as process:
            while left() == events:
                assert process.poll() is None
            process.send_signal(number)
        assert process.returncode == 128 + number
        assert 0 < left() < events
        (entry,) = shop.json("unrouted", "history")
        assert (entry["outcome"], entry["error"]) == ("stopped", "interrupted")
        assert (entry["chosen"], entry["done"]) == (events, events - left())


MALFORMED = {
    "no-body": "('ArchiveIngested', 'no-body', 1.0, null)",
    "number": "('ArchiveIngested', 'number', 1.0, 17)",
    "no-time": "('ArchiveIngested', 'no-time', 'yesterday', '{}')",
    "an id that is no text": "('ArchiveIngested', cast(x'6fff' as text), 1.0, '{}')",
    "an id of bytes": "('ArchiveIngested', x'6fff', 1.0, '{}')",
    "no-text": "('ArchiveIngested', 'no-text', 1.0, cast(x'7bff' as text))",
    "bytes": "(x'41ff', 'bytes', 1.0, '{}')",
    "no-utf8": "(cast(x'41ff' as text), 'no-utf8', 1.0, x'ff')",
    "no-type": "('', 'no-type', 1.0, '{}')",
}


def test_what_other_programs_wrote_is_listed_as_malformed_and_purged(shop: ShopFile) -> None:
    shop.work()
    with closing(sqlite3.connect(shop.path)) as file, file:
        into = "insert into headway_unrouted (event_type, operation, at, body) values"
        file.execute(f"{into} {', '.join(MALFORMED.values())}")
        file.execute(f"{into} ('ArchiveIngested', 'no-json', 1.0, 'no json')")
    malformed = {**THERE, "(malformed)": len(MALFORMED)}
    assert listed(shop) == {**malformed, "ArchiveIngested": 1}
    assert shop.typed("unrouted", "list").returncode == 0
    shown = shop.json("unrouted", "show", "(malformed)")
    assert [each["event_id"] for each in shown] == ["" if " " in one else one for one in MALFORMED]
    found = shop.verified()
    assert (found["verdict"], found["places"]["unrouted"]) == ("not ok", len(MALFORMED) + 4)
    shop.work()  # a service starts, and the event that is none becomes a dead letter of its own
    assert listed(shop) == malformed
    letter = shop.json("failed", "inspect", "parsing")[0]
    assert (letter["operation"], letter["abandoned_reason"]) == ("no-json", "malformed")
    assert shop.typed("unrouted", "route", "(malformed)").returncode == 1
    assert listed(shop) == malformed
    assert shop.typed("unrouted", "purge", "(malformed)", "--yes").returncode == 0
    assert listed(shop) == THERE


def test_only_what_is_named_and_confirmed_is_purged_and_recorded(shop: ShopFile) -> None:
    for words, code in ((["--yes"], 2), (["ReportAsked"], 2), (["ReportAsked", "--dry-run"], 0)):
        assert shop.typed("unrouted", "purge", *words, stdin="").returncode == code
    assert listed(shop) == THERE
    assert shop.json("unrouted", "history") == []
    done = shop.typed("unrouted", "purge", "--id", "event-1", "--id", "none", "--yes")
    assert (done.returncode, "none" in done.stdout) == (1, True)
    assert shop.json("unrouted", "purge", "ReportAsked", "--yes")["chosen"] == {"ReportAsked": 1}
    assert listed(shop) == {"ArchiveIngestd": 1}
    found = shop.json("verify")
    assert (found["verdict"], found["purged"], found["difference"]) == ("ok", 2, 0)
    entries = [(each["selection"], each["done"]) for each in shop.json("unrouted", "history")]
    assert entries == [("ReportAsked", 1), ("ids=event-1,none", 1)]


def test_verify_counts_what_no_service_takes(shop: ShopFile) -> None:
    found = shop.verified()
    assert (found["verdict"], found["places"]["unrouted"]) == ("ok", 3)
    with closing(sqlite3.connect(shop.path)) as file, file:
        file.execute("delete from headway_unrouted where operation = 'event-2'")
    found = shop.verified()
    assert (found["verdict"], found["examples"][0]["operation"]) == ("not ok", "event-2")
