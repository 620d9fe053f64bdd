"""`headway verify` on a real file."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from headway.clock import SystemChance, SystemClock
from headway.testing.engines import sqlite_engine
from tests.cli.shops import ShopFile


@pytest.fixture
def shop(tmp_path: Path) -> ShopFile:
    shop = ShopFile(tmp_path)
    shop.fill({"bad": "a"}, {"bad": "b"}, {"good": 1})
    return shop


def execute(shop: ShopFile, *statements: str) -> list[tuple[str]]:
    with closing(sqlite3.connect(shop.path)) as file, file:
        return [row for each in statements for row in file.execute(each).fetchall()]


def test_it_balances_and_says_so(shop: ShopFile) -> None:
    done = shop.typed("verify")
    assert done.returncode == 0
    found = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    expected = {"failed": "2", "done": "1", "accepted": "3", "difference": "0"}
    assert found.items() >= expected.items()
    assert shop.json("verify")["verdict"] == "ok"


def test_a_letter_removed_by_hand_is_missed_and_named(shop: ShopFile) -> None:
    ((operation,), *_) = execute(shop, "select operation from headway_letters")
    execute(shop, f"delete from headway_letters where operation = '{operation}'")
    done = shop.typed("verify")
    assert (done.returncode, operation in done.stdout) == (1, True)
    found = shop.verified()
    assert (found["verdict"], found["difference"], found["astray"]) == ("not ok", 1, 1)
    assert (found["examples"][0]["operation"], found["examples"][0]["fault"]) == (
        *(operation, "missing"),
    )


def test_a_foreign_operation_does_not_make_up_for_a_missing_one(shop: ShopFile) -> None:
    first = "(select min(id) from headway_letters)"
    execute(shop, f"update headway_letters set operation = 'foreign' where id = {first}")
    found = shop.verified()
    assert found["verdict"] == "not ok"
    assert (found["difference"], found["astray"]) == (0, 2)
    assert {each["fault"] for each in found["examples"]} == {"missing", "surplus"}


def test_paused_event_types_are_named(shop: ShopFile) -> None:
    async def pause() -> None:
        engine = sqlite_engine(shop.path, SystemClock(), SystemChance())
        assert engine.sweeping is not None
        for name in ("down/mail/Welcome/paused", "down/mail/Reminder"):
            await engine.sweeping.leases.hold(name, "w", timedelta(minutes=5))
        await engine.close()

    asyncio.run(pause())
    done = shop("verify")
    assert (done.exit_code, "Welcome" in done.stdout, "Reminder" in done.stdout) == (0, True, False)
    assert shop.json("verify")["paused"] == [{"service": "mail", "event_type": "Welcome"}]


def test_operations_of_a_list_are_looked_for(shop: ShopFile) -> None:
    operations = [one for (one,) in execute(shop, "select operation from headway_accepted")]
    ids = shop.folder / "ids"
    ids.write_text("\n\n".join(operations) + "\n")
    found = shop.verified("--against", str(ids))
    assert (found["verdict"], found["against"]) == ("ok", 3)
    assert (found["nowhere"], found["not_known"]) == ([], [])
    lost = operations[0]
    for table in ("letters", "done"):
        execute(shop, f"delete from headway_{table} where operation = '{lost}'")
    ids.write_text("\n".join([*operations, "strange"]))
    done = shop.typed("verify", "--against", "ids")
    assert (done.returncode, lost in done.stdout, "strange" in done.stdout) == (1, True, True)
    found = shop.verified("--against", str(ids))
    assert (found["nowhere"], found["not_known"]) == ([lost], ["strange"])


def test_a_list_that_cannot_be_read_is_one_line(shop: ShopFile) -> None:
    (shop.folder / "empty").write_text("\n\n")
    for name in ("no-such-file", "empty"):
        done = shop.typed("verify", "--against", name)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert f"--against '{name}'" in done.stderr


def test_before_any_service_has_run_what_was_published_balances(tmp_path: Path) -> None:
    shop = ShopFile(tmp_path)
    assert shop.typed("verify").returncode == 2  # there is no file
    shop.path.touch()
    assert shop.typed("verify").returncode == 4  # nothing has ever run here
    assert shop("publish", "OrderPlaced", "{}").exit_code == 0
    found = shop.verified()
    assert (found["verdict"], found["places"]["unrouted"]) == ("ok", 1)
    execute(shop, "drop table headway_done")
    done = shop.typed("verify")
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
