"""`headway verify` on a real file."""

import asyncio
import contextlib
import json
import sqlite3
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from headway import connect
from headway.apps.cli.balance import _said
from headway.clock import SystemChance, SystemClock
from headway.operations import Balance, QueueCount, verify
from headway.runtime.overview import Verdict
from headway.testing.engines import sqlite_engine
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


def test_what_was_only_published_balances_before_any_service_has_run(tmp_path: Path) -> None:
    shop = ShopFile(tmp_path)
    assert shop("publish", "OrderPlaced", "{}").exit_code == 0
    done = shop("verify")
    assert (done.exit_code, "unrouted              1" in done.stdout) == (0, True)


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


def test_a_foreign_operation_does_not_make_up_for_a_missing_one(shop: ShopFile) -> None:
    with sqlite3.connect(shop.path) as file:
        first = "(select min(id) from headway_letters)"
        file.execute(f"update headway_letters set operation = 'foreign' where id = {first}")
    file.close()
    found = shop("verify", "--json")
    counts = json.loads(found.stdout)
    assert (found.exit_code, counts["verdict"]) == (1, "not ok")
    assert (counts["difference"], counts["astray"]) == (0, 2)
    assert {each["fault"] for each in counts["examples"]} == {"missing", "surplus"}


async def test_paused_event_types_are_named(shop: ShopFile) -> None:
    engine = sqlite_engine(shop.path, SystemClock(), SystemChance())
    assert engine.sweeping is not None
    leases = engine.sweeping.leases
    await leases.hold("down/mail/Welcome/paused", "w", timedelta(minutes=5))
    await leases.hold("down/mail/Reminder", "w", timedelta(minutes=5))
    done = await asyncio.to_thread(shop.typed, "verify")
    assert done.returncode == 0
    assert "Welcome of mail is paused" in done.stdout
    assert "Reminder" not in done.stdout
    machine = await asyncio.to_thread(shop, "verify", "--json")
    found = json.loads(machine.stdout)["paused"]
    assert found == [{"service": "mail", "event_type": "Welcome"}]
    await engine.close()


def operations(shop: ShopFile) -> list[str]:
    with sqlite3.connect(shop.path) as file:
        found = [one for (one,) in file.execute("select operation from headway_accepted")]
    file.close()
    return found


def test_every_operation_of_a_list_is_found(shop: ShopFile) -> None:
    (shop.folder / "ids").write_text("\n\n".join(operations(shop)) + "\n")
    done = shop.typed("verify", "--against", "ids")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(shop("verify", "--json", "--against", str(shop.folder / "ids")).stdout)
    assert (found["against"], found["nowhere"], found["not_known"]) == (3, [], [])


def test_what_is_nowhere_is_told_from_what_was_never_here(shop: ShopFile) -> None:
    everything = operations(shop)
    with sqlite3.connect(shop.path) as file:
        file.execute("delete from headway_letters where operation = ?", (everything[0],))
        file.execute("delete from headway_done where operation = ?", (everything[0],))
    file.close()
    (shop.folder / "ids").write_text("\n".join([*everything, "nobody's"]))
    done = shop.typed("verify", "--against", "ids")
    assert done.returncode == 1
    assert f"{everything[0]} of the file was accepted and is nowhere" in done.stdout
    assert (
        "nobody's of the file is not known here: it was forgotten, or never accepted" in done.stdout
    )
    assert "1 of 4 in the file nowhere, 1 of 4 in the file not known here" in done.stdout
    found = json.loads(shop("verify", "--json", "--against", str(shop.folder / "ids")).stdout)
    assert (found["nowhere"], found["not_known"]) == ([everything[0]], ["nobody's"])


def test_a_list_that_cannot_be_read_is_one_line(shop: ShopFile) -> None:
    missing = shop.typed("verify", "--against", "no-such-file")
    said = "headway: --against 'no-such-file' is not accepted: No such file or directory\n"
    assert (missing.returncode, missing.stderr) == (2, said)
    (shop.folder / "empty").write_text("\n\n")
    empty = shop.typed("verify", "--against", "empty")
    assert empty.returncode == 2
    assert "--against 'empty' is not accepted: it is empty; write the ids" in empty.stderr


class Uncounted:
    """An engine that does not count what it accepts."""

    def __init__(
        self,
        *,
        ready: int = 2,
        in_hand: bool = False,
        remembers: bool = True,
        counts_leased: bool = True,
    ) -> None:
        self.ready = ready
        self.counts_leased = counts_leased
        self.in_hand = in_hand
        self.remembers = remembers

    async def balance(self) -> Balance:
        return Balance(
            queues=[QueueCount(queue="q", ready=self.ready)],
            failed={"f": 1},
            done=0,
            in_hand=self.in_hand,
            remembers=self.remembers,
            counts_leased=self.counts_leased,
        )

    async def astray(self, _limit: int) -> tuple[int, list[object]]:
        return 0, []

    async def where(self, operations: list[str]) -> dict[str, list[str]]:
        return {one: ["ready in q"] * (one != "lost") for one in operations if one != "strange"}


async def test_what_nobody_counted_is_unknown() -> None:
    report = await verify(Uncounted())  # type: ignore[arg-type]
    assert (report.verdict, report.total, report.difference) == (Verdict.UNKNOWN, 3, None)


async def test_a_list_of_operations_is_looked_for() -> None:
    report = await verify(Uncounted(), against=["a", "lost", "a"])  # type: ignore[arg-type]
    assert (report.verdict, report.against, report.nowhere) == (Verdict.NOT_OK, 2, ["lost"])
    for against, verdict in ((["a"], Verdict.OK), ([], Verdict.UNKNOWN)):
        report = await verify(Uncounted(), against=against)  # type: ignore[arg-type]
        assert report.verdict is verdict


@pytest.mark.parametrize(
    ("places", "verdict", "said"),
    [
        (Uncounted(ready=0), Verdict.NOT_OK, "not ok: 1 of 2 in the file missing"),
        (Uncounted(ready=1), Verdict.UNKNOWN, "1 event still waits in queues"),
        (Uncounted(ready=2), Verdict.UNKNOWN, "2 events still wait in queues"),
        (Uncounted(ready=0, in_hand=True), Verdict.UNKNOWN, "workers may have some in hand"),
        (Uncounted(ready=0, remembers=False), Verdict.UNKNOWN, "nothing remembers what was done"),
    ],
    ids=["nothing waits", "one waits", "some wait", "some in hand", "no store"],
)
async def test_what_is_not_found_is_missing_only_where_that_can_be_known(
    places: Uncounted, verdict: Verdict, said: str
) -> None:
    report = await verify(places, against=["a", "strange"])  # type: ignore[arg-type]
    assert report.verdict is verdict
    unfound = report.not_known if verdict is Verdict.NOT_OK else report.not_yet
    assert list(unfound) == ["strange"]
    assert said in _said(report)


async def test_what_nobody_can_know_is_not_called_zero() -> None:
    report = await verify(Uncounted(remembers=False, counts_leased=False))  # type: ignore[arg-type]
    assert (report.places["done"], report.places["leased"], report.total) == (None, None, 3)


async def test_all_of_a_list_found_is_ok_even_if_nobody_counted() -> None:
    report = await verify(Uncounted(ready=0), against=["a", "b"])  # type: ignore[arg-type]
    assert _said(report) == "ok: all 2 of the file were found, 0 are missing"


def test_a_file_on_which_nothing_ever_ran_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    ran = verified(tmp_path / "empty.db")
    assert ran.returncode == 4
    assert "no service has ever run" in ran.stdout


def test_a_file_that_lost_its_tables_is_said_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.db"
    assert verified(path).returncode == 2
    path.touch()
    assert verified(path).returncode == 4
    asyncio.run(publish_one(path))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("drop table headway_done")
    ran = verified(path)
    assert ran.returncode == 2
    assert "the database cannot be used" in ran.stderr
    assert "Traceback" not in ran.stderr


async def publish_one(path: Path) -> None:
    async with connect(f"sqlite:///{path}") as connection:
        await connection.publish("OrderPlaced", {})


def verified(path: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headway.apps.cli", "verify", "--bus", f"sqlite:///{path}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
