"""`headway verify` on a real file."""

import json
import sqlite3
from pathlib import Path

import pytest

from headway.ports.places import Count, QueueCount
from headway.runtime.overview import Verdict, verify
from tests.cli.shops import ShopFile


@pytest.fixture
def shop(tmp_path: Path) -> ShopFile:
    shop = ShopFile(tmp_path)
    shop.fill({"bad": "a"}, {"bad": "b"}, {"good": 1})
    return shop


def test_it_balances_and_says_so(shop: ShopFile) -> None:
    done = shop.typed("verify")
    assert done.returncode == 0
    found = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    assert (found["failed"], found["done"], found["accepted"], found["difference"]) == (
        "2",
        "1",
        "3",
        "0",
    )
    assert "ok: everything" in done.stdout
    assert json.loads(shop("verify", "--json").stdout)["verdict"] == "ok"


def test_a_letter_removed_by_hand_is_missed_and_named(shop: ShopFile) -> None:
    with sqlite3.connect(shop.path) as file:
        (operation,) = file.execute("select operation from headway_letters").fetchone()
        file.execute("delete from headway_letters where operation = ?", (operation,))
    file.close()
    done = shop.typed("verify")
    assert done.returncode == 1
    assert f"{operation} of parsing.archive.ingested was accepted and is nowhere" in done.stdout
    assert "not ok: 1 operation not in exactly one place" in done.stdout
    found = json.loads(shop("verify", "--json").stdout)
    assert (found["difference"], found["astray"]) == (1, 1)
    assert found["examples"][0]["operation"] == operation
    assert found["examples"][0]["fault"] == "missing"


def test_a_list_of_operations_needs_an_engine_that_finds_them(shop: ShopFile) -> None:
    (shop.folder / "ids").write_text("a\n\nb\n")
    done = shop.typed("verify", "--against", "ids")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    missing = shop.typed("verify", "--against", "no-such-file")
    assert (missing.returncode, len(missing.stderr.splitlines())) == (2, 1)


class Uncounted:
    """An engine that does not count what it accepts."""

    async def count(self) -> Count:
        return Count(queues=[QueueCount(queue="q", ready=2)], failed={"f": 1}, done=0)

    async def astray(self, _limit: int) -> tuple[int, list[object]]:
        return 0, []


class Findable(Uncounted):
    async def find(self, operations: list[str]) -> dict[str, tuple[str, ...]]:
        return {one: ("ready",) for one in operations if one != "lost"}


async def test_what_nobody_counted_is_unknown() -> None:
    report = await verify(Uncounted())  # type: ignore[arg-type]
    assert (report.verdict, report.total, report.difference) == (Verdict.UNKNOWN, 3, None)


async def test_a_list_of_operations_is_looked_for() -> None:
    report = await verify(Findable(), against=["a", "lost", "a"])  # type: ignore[arg-type]
    assert (report.verdict, report.against, report.nowhere) == (Verdict.NOT_OK, 2, ["lost"])
    assert (await verify(Findable(), against=["a"])).verdict is Verdict.OK  # type: ignore[arg-type]
