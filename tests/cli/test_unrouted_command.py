"""`headway unrouted` on a real file."""

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway import connect
from tests.cli.shops import ShopFile


@pytest.fixture
def shop(tmp_path: Path) -> ShopFile:
    """A shop in which nothing has run yet, and events of two types wait."""
    shop = ShopFile(tmp_path)
    publish(
        shop, [("ArchiveIngestd", {"good": 1})] * 2 + [("ReportAsked", {"password": "hunter2"})]
    )
    return shop


def publish(shop: ShopFile, events: Sequence[tuple[str, Any]]) -> None:
    async def run() -> None:
        async with connect(shop.url) as headway:
            ids = [f"event-{number}" for number in range(len(events))]
            await headway.publish_all(events, event_ids=ids)

    asyncio.run(run())


def listed(shop: ShopFile) -> dict[str, int]:
    found = json.loads(shop("unrouted", "list", "--json").stdout)
    return {each["event_type"]: each["events"] for each in found}


def bind(shop: ShopFile, event_type: str) -> None:
    """Have a queue take a type by hand: the engine itself leaves nothing unrouted then."""
    with sqlite3.connect(shop.path) as file:
        file.execute(
            "insert into headway_bindings values (?, 'parsing.archive.ingested')", (event_type,)
        )
    file.close()


def test_types_are_listed_with_what_was_meant(shop: ShopFile) -> None:
    shop.work()
    done = shop.typed("unrouted", "list")
    assert (done.returncode, done.stderr) == (0, "")
    head, _, first, second, *_ = done.stdout.splitlines()
    assert head.split() == ["type", "events", "oldest", "did", "you", "mean"]
    assert (first.split()[0], first.split()[1], first.split()[-1]) == (
        "ArchiveIngestd",
        "2",
        "ArchiveIngested",
    )
    assert (second.split()[0], second.split()[1], second.split()[-1]) == ("ReportAsked", "1", "-")


def test_nothing_unrouted_is_said(tmp_path: Path) -> None:
    shop = ShopFile(tmp_path)
    shop.work()
    assert "No event is unrouted" in shop.typed("unrouted", "list").stdout
    assert "0 events moved" in shop.typed("unrouted", "route").stdout


def test_events_are_shown_without_secrets(shop: ShopFile) -> None:
    done = shop("unrouted", "show", "ReportAsked")
    assert "event-2  ReportAsked" in done.stdout
    assert "hunter2" not in done.stdout
    assert "hunter2" in shop("unrouted", "show", "ReportAsked", "--raw").stdout
    (found,) = json.loads(shop("unrouted", "show", "ReportAsked", "--json").stdout)
    assert (found["event_id"], found["event"]["data"]) == ("event-2", {"password": "***"})
    assert "There may be more" in shop("unrouted", "show", "--limit", "2").stdout


def test_what_has_a_queue_by_now_is_routed_and_the_rest_is_named(shop: ShopFile) -> None:
    shop.work()
    bind(shop, "ArchiveIngestd")
    tried = shop("unrouted", "route", "--dry-run")
    assert tried.stdout.startswith("2 events would be moved to queues.\n")
    assert listed(shop) == {"ArchiveIngestd": 2, "ReportAsked": 1}
    done = shop.typed("unrouted", "route", "--reason", "deployed")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "2 events moved to queues.",
        "  2 events of ArchiveIngestd",
        "  ReportAsked still has no queue: start a service that takes it.",
    ]
    assert listed(shop) == {"ReportAsked": 1}
    assert json.loads(shop("verify", "--json").stdout)["verdict"] == "ok"
    (entry,) = json.loads(shop("unrouted", "history", "--json").stdout)
    assert (entry["what"], entry["unrouted"], entry["reason"], entry["done"], entry["outcome"]) == (
        "route",
        "ArchiveIngestd",
        "deployed",
        2,
        "complete",
    )
    assert "route" in shop.typed("unrouted", "history").stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_route_that_is_interrupted_records_what_it_moved(tmp_path: Path, number: int) -> None:
    shop, events = ShopFile(tmp_path), 60_000
    shop.work()
    publish(shop, [("ArchiveIngestd", {})] * events)
    bind(shop, "ArchiveIngestd")
    with closing(sqlite3.connect(shop.path)) as file:

        def left() -> int:
            return int(file.execute("select count(*) from headway_unrouted").fetchone()[0])

        command = [sys.executable, "-m", "headway.apps.cli", "unrouted", "route"]
        with subprocess.Popen(command, cwd=shop.folder) as process:
            while left() == events:
                assert process.poll() is None
            process.send_signal(number)
        assert process.returncode == 128 + number
        assert 0 < left() < events
        (entry,) = json.loads(shop("unrouted", "history", "--json").stdout)
        assert (entry["outcome"], entry["error"]) == ("stopped", "interrupted")
        assert (entry["chosen"], entry["done"]) == (events, events - left())


def test_what_other_programs_wrote_is_listed_as_malformed_and_purged(shop: ShopFile) -> None:
    shop.work()
    values = [
        "('ArchiveIngested', 'no-body', 1.0, null)",
        "('ArchiveIngested', 'number', 1.0, 17)",
        "('ArchiveIngested', 'no-time', 'yesterday', '{}')",
        "('ArchiveIngested', cast(x'6fff' as text), 1.0, '{}')",
        "('ArchiveIngested', x'6fff', 1.0, '{}')",
        "('ArchiveIngested', 'no-text', 1.0, cast(x'7bff' as text))",
        "(x'41ff', 'bytes', 1.0, '{}')",
        "(cast(x'41ff' as text), 'no-utf8', 1.0, x'ff')",
        "('', 'no-type', 1.0, '{}')",
    ]
    with closing(sqlite3.connect(shop.path)) as file, file:
        into = "insert into headway_unrouted (event_type, operation, at, body) values"
        file.execute(f"{into} {', '.join(values)}")
        file.execute(f"{into} ('ArchiveIngested', 'no-json', 1.0, 'no json')")
    done = shop.typed("unrouted", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Events listed as (malformed) have no type, or cannot be read" in done.stdout
    there = {"ArchiveIngestd": 2, "ReportAsked": 1}
    assert listed(shop) == {**there, "(malformed)": len(values), "ArchiveIngested": 1}
    shown = json.loads(shop("unrouted", "show", "(malformed)", "--json").stdout)
    assert [each["event_id"] for each in shown] == [
        *("no-body", "number", "no-time", "", "", "no-text", "bytes", "no-utf8", "no-type")
    ]
    done = shop.typed("verify")
    assert (done.returncode, done.stderr) == (1, "")
    assert ["unrouted", str(len(values) + 4)] in [line.split() for line in done.stdout.splitlines()]
    shop.work()  # a service starts, and the event that is none becomes a dead letter of its own
    assert listed(shop) == {**there, "(malformed)": len(values)}
    letter = json.loads(shop("failed", "inspect", "parsing", "--json").stdout)[0]
    assert (letter["operation"], letter["abandoned_reason"]) == ("no-json", "malformed")
    routed = shop.typed("unrouted", "route", "(malformed)")
    assert (routed.returncode, routed.stdout.splitlines()) == (
        1,
        [
            "0 events moved to queues.",
            (
                "  (malformed): these events cannot be routed. Look at them with headway unrouted "
                "show '(malformed)', and purge them."
            ),
        ],
    )
    done = shop.typed("unrouted", "purge", "(malformed)", "--yes")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"{len(values)} events removed.")
    assert listed(shop) == there


def test_nothing_is_purged_unless_it_is_named_and_confirmed(shop: ShopFile) -> None:
    refused = shop.typed("unrouted", "purge", "--yes")
    assert (refused.returncode, "Nothing is selected" in refused.stderr) == (2, True)
    done = shop.typed("unrouted", "purge", "ReportAsked", stdin="")
    assert (done.returncode, "Confirm with --yes" in done.stderr) == (2, True)
    done = shop.typed("unrouted", "purge", "ReportAsked", "--dry-run")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "1 event would be removed.")
    assert listed(shop) == {"ArchiveIngestd": 2, "ReportAsked": 1}
    assert json.loads(shop("unrouted", "history", "--json").stdout) == []


def test_what_is_named_is_purged_and_recorded(shop: ShopFile) -> None:
    done = shop.typed("unrouted", "purge", "--id", "event-1", "--id", "none", "--yes")
    assert (done.returncode, done.stdout.splitlines()) == (
        1,
        [
            "1 event removed.",
            "  1 event of ArchiveIngestd",
            "  none: no such event is unrouted",
        ],
    )
    done = shop.typed("unrouted", "purge", "ReportAsked", "--yes", "--json")
    assert json.loads(done.stdout)["chosen"] == {"ReportAsked": 1}
    assert listed(shop) == {"ArchiveIngestd": 1}
    found = json.loads(shop("verify", "--json").stdout)
    assert (found["verdict"], found["purged"], found["difference"]) == ("ok", 2, 0)
    entries = json.loads(shop("unrouted", "history", "--json").stdout)
    assert [(each["selection"], each["done"]) for each in entries] == [
        ("ReportAsked", 1),
        ("ids=event-1,none", 1),
    ]


def test_verify_counts_what_no_service_takes(shop: ShopFile) -> None:
    done = shop.typed("verify")
    assert done.returncode == 0
    assert ["unrouted", "3"] in [line.split() for line in done.stdout.splitlines()]
    assert done.stdout.endswith(
        "3 events wait for a service that takes their types: see 'headway unrouted list'\n"
    )
    with sqlite3.connect(shop.path) as file:
        file.execute("delete from headway_unrouted where operation = 'event-2'")
    file.close()
    done = shop.typed("verify")
    assert done.returncode == 1
    assert "event-2 of unrouted ReportAsked was accepted and is nowhere" in done.stdout
