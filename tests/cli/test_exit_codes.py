"""Exit codes, for every command: one table."""

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from headway import Event, Service, Work
from headway.apps.cli.refusals import said_in_one_line
from headway.clock import SystemChance, SystemClock
from headway.testing.engines import sqlite_engine
from tests.cli.shops import ShopFile, typed
from tests.commands import app

AWAY = "127.0.0.1:1"
BROKER = {"HEADWAY_BUS": f"amqp://{AWAY}", "HEADWAY_STORE": f"postgresql://{AWAY}/x"}
SEQUENCES = {"HEADWAY_SEQUENCES": f"redis://{AWAY}"}
SHOP = """
from headway import Service

shop = Service("shop")


@shop.on("OrderPlaced", documents=("orders", "order"))
async def reserve(event, work):
    raise ValueError("no such order")
"""


def leaves(command: Any, *path: str) -> Iterator[str]:
    """Name every command that does something."""
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path)
    for name, each in sorted((below or {}).items()):
        yield from leaves(each, *path, name)


COMMANDS = list(leaves(typer.main.get_command(app)))

CHANGES = ("archive orders a", "purge orders a --yes", "reset orders a", "restore orders a")
ON_THE_ENGINE = [
    "verify",
    "publish OrderPlaced {}",
    "failed list",
    *(f"failed {verb} shop" for verb in ("inspect", "requeue", "purge --yes", "export", "history")),
    *(f"documents {each}" for each in (*CHANGES, "retry orders a --at now")),
    *(f"documents {verb} orders" for verb in ("stuck", "export", "history")),
    *(f"unrouted {verb}" for verb in ("list", "show", "route", "purge Unknown --yes", "history")),
    "sweep shop --once",
    "sweep shop --dry-run",
]
ON_SEQUENCES = ["order status", "order explain k", "order drain k --yes", "order history"]

TABLE: list[tuple[str, dict[str, str], int]] = [
    # 0: done
    ("config show", {}, 0),
    ("failed list", {}, 0),
    ("failed inspect shop", {}, 0),
    ("failed export shop", {}, 0),
    ("failed history", {}, 0),
    ("documents stuck orders", {}, 0),
    ("documents history", {}, 0),
    ("verify", {}, 0),
    ("sweep shop --once", {}, 0),
    ("order status", {}, 0),
    # 1: what was asked about is not well
    ("failed inspect shop --id 00000000", {}, 1),
    ("failed requeue shop --id 00000000", {}, 1),
    ("failed purge shop --id 00000000 --yes", {}, 1),
    ("failed export shop --id 00000000", {}, 1),
    ("documents reset orders nowhere", {}, 1),
    ("documents stuck nowhere", {}, 1),
    ("verify --against ids.txt", {}, 1),
    ("unrouted route Unknown", {}, 1),
    ("order drain k --yes", {}, 1),
    # 2: wrong use or settings
    *((f"{command} --no-such-option", {}, 2) for command in COMMANDS),
    *((command, {"HEADWAY_BUS": "ftp://x"}, 2) for command in ON_THE_ENGINE),
    *(
        (command, {"HEADWAY_BUS": "sqlite:///none.db"}, 2)
        for command in ON_THE_ENGINE
        if "publish" not in command
    ),
    *((command, {"HEADWAY_BUS": "sqlite:///no.db"}, 2) for command in ON_THE_ENGINE),
    *((command, {"HEADWAY_SEQUENCES": "sqlite:///none.db"}, 2) for command in ON_SEQUENCES),
    ("sweep nowhere --once", {}, 2),
    ("run nowhere", {}, 2),
    ("run nowhere --workers 2", {}, 2),
    ("failed purge shop", {}, 2),
    ("failed inspect shop --id 00000000 --id 11111111", {}, 2),
    ("failed requeue shop --id abc", {}, 2),
    ("failed requeue shop --target-queue=", {}, 2),
    ("failed requeue shop --error-type=", {}, 2),
    ("failed requeue shop --reason=", {}, 2),
    ("failed export shop --output=", {}, 2),
    ("documents reset orders a --reason=", {}, 2),
    ("uptime rejected", {}, 2),
    ("uptime feed nofile", {}, 2),
    ("consensus status", {}, 2),
    ("consensus ingest nowhere", {}, 2),
    ("ui --errors /nowhere/errors.db", {}, 2),
    # 3: the engine is unavailable
    *((command, BROKER, 3) for command in ON_THE_ENGINE),
    *((command, SEQUENCES, 3) for command in ON_SEQUENCES),
    (
        "uptime status",
        {"UPTIME_STORE": "sqlite:///headway.db", "UPTIME_SEQUENCES": f"redis://{AWAY}"},
        3,
    ),
    ("ledger serve", {"LEDGER_DATABASE_URL": f"postgresql://{AWAY}/x"}, 3),
    ("ledger load --url http://127.0.0.1:1", {}, 3),
    # 4: it cannot be known
    ("verify", {"HEADWAY_BUS": "sqlite:///empty.db"}, 4),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One dead letter of a service that has run, and files that are none of ours."""
    folder = tmp_path_factory.mktemp("codes")
    (folder / "shop.py").write_text(SHOP)
    (folder / "ids.txt").write_text("never-published\n")
    (folder / "no.db").write_text("x" * 5_000)
    shop = Service("shop")

    @shop.on("OrderPlaced", documents=("orders", "order"))
    async def reserve(event: Event, work: Work) -> None:
        raise ValueError("no such order")

    file = ShopFile(folder)
    file.fill({"order": "o-1"}, event_type="OrderPlaced", declared=[shop])
    file.put("orders", "o-2")
    asyncio.run(_open(folder / "empty.db"))
    return folder


async def _open(path: Path) -> None:
    engine = sqlite_engine(path, SystemClock(), SystemChance())
    await engine.open([])
    await engine.close()


@pytest.mark.parametrize(
    ("command", "settings", "expected"),
    TABLE,
    ids=[f"{code}-{command}-{','.join(settings.values())}" for command, settings, code in TABLE],
)
def test_every_command_ends_with_the_same_codes(
    folder: Path, command: str, settings: dict[str, str], expected: int
) -> None:
    done = typed(*command.split(), folder=folder, environment=settings)
    assert done.returncode == expected, done


BROKEN = {
    "ImportError": ("from json import nonsense", "'nonsense'"),
    "ModuleNotFoundError": ("import starlette.nonsense", "'starlette.nonsense'"),
    "SyntaxError": ("def broken(:", "invalid syntax"),
    "ZeroDivisionError": ("1 / 0", "division by zero"),
    "ConnectionError": ("raise ConnectionError('postgresql://u:s3cret@h/x')", "u:***@h/x"),
}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("sweep broken --once", name) for name in BROKEN),
        ("run broken:shop", "ImportError"),
        ("run broken:shop --workers 2", "ConnectionError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_wrong_use_and_its_traceback_is_shown(
    tmp_path: Path, command: str, name: str
) -> None:
    line, why = BROKEN[name]
    (tmp_path / "broken.py").write_text(f"from deeper import shop\n\n{SHOP}")
    (tmp_path / "deeper.py").write_text(f"shop = 1\n{line}\n")
    done = typed(*command.split(), folder=tmp_path)
    assert done.returncode == 2, done.stderr
    *shown, last = done.stderr.splitlines()
    assert re.match(f"headway: 'broken.* {name}: ", last)
    assert why in last
    assert shown[0] == "Traceback (most recent call last):"
    assert re.search(r'File ".*broken\.py", line 1', shown[1]), "it begins with the user's module"
    assert any(re.search(r'File ".*deeper\.py", line 2', each) for each in shown)
    assert "s3cret" not in done.stderr
    assert "importlib" not in done.stderr


def test_a_mistake_that_headway_refuses_on_import_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(SHOP.replace('("orders", "order")', '"orders"'))
    done = typed("run", "broken:shop", folder=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "documents='orders' for OrderPlaced (broken.py:" in line


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        (sqlite3.SQLITE_BUSY, 3),
        (sqlite3.SQLITE_IOERR_WRITE, 3),
        (sqlite3.SQLITE_FULL, 3),
        (sqlite3.SQLITE_NOTADB, 2),
    ],
)
def test_a_file_that_is_locked_or_full_is_unavailable(why: int, expected: int) -> None:
    error = sqlite3.OperationalError("no")
    error.sqlite_errorcode = why
    with pytest.raises(SystemExit) as ended, said_in_one_line():
        raise error
    assert ended.value.code == expected
