"""`headway unrouted route` and `purge`: what is said when others change the same events."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway import connect
from tests.cli.shops import ShopFile

TYPE = "ArchiveIngestd"


async def published(url: str, number: int, *event_types: str) -> None:
    async with connect(url) as headway:
        ids = [f"event-{each}" for each in range(number)]
        for event_type in event_types or (TYPE,):
            await headway.publish_all([(event_type, {})] * number, event_ids=ids)


@pytest.fixture
def shop(tmp_path: Path) -> ShopFile:
    """A shop in which events wait whose type has a queue by now."""
    shop = ShopFile(tmp_path)
    shop.work()
    asyncio.run(published(shop.url, 5))
    run(shop, f"insert into headway_bindings values ('{TYPE}', 'parsing.archive.ingested')")
    return shop


def run(shop: ShopFile, *statements: str) -> None:
    with closing(sqlite3.connect(shop.path)) as file, file:
        for each in statements:
            file.execute(each)


def removed_first(shop: ShopFile, number: int) -> None:
    """Have another process take events away after the command counted them, before it acts."""
    ids = f"select operation from headway_unrouted order by id limit {number}"
    run(
        shop,
        f"""create trigger other_process after insert on headway_notes
        when json_extract(new.body, '$.outcome') = 'intended' begin
            delete from headway_accepted where queue = 'unrouted {TYPE}' and operation in ({ids});
            delete from headway_unrouted where operation in ({ids});
        end""",
    )


@pytest.mark.parametrize("first", [5, 2])
@pytest.mark.parametrize("what", ["route", "purge"])
def test_what_another_process_changed_first_is_said_and_recorded(
    shop: ShopFile, what: str, first: int
) -> None:
    removed_first(shop, first)
    done = shop("unrouted", what, TYPE, *(["--yes"] if what == "purge" else []))
    assert done.exit_code == 0
    own, others, *_ = done.stdout.splitlines()
    assert (own.split()[0], others.split()[0]) == (str(5 - first), str(first))
    assert "service or another operator" in others
    (entry,) = json.loads(shop("unrouted", "history", "--json").stdout)
    assert (entry["chosen"], entry["done"], entry["gone"]) == (5, 5 - first, first)


def test_what_another_process_changed_first_is_said_to_machines(shop: ShopFile) -> None:
    removed_first(shop, 3)
    found = json.loads(shop("unrouted", "route", "--json").stdout)
    assert (found["chosen"], found["done"], found["gone"], found["stayed"]) == ({TYPE: 5}, 2, 3, 0)


def test_purge_by_id_shows_every_event_that_it_removes(tmp_path: Path) -> None:
    shop = ShopFile(tmp_path)
    asyncio.run(published(shop.url, 2, "OrderPlacd", "OrderPad"))
    words = ("unrouted", "purge", "--json", *("--id", "event-0", "--id", "b", "--id", "a"))
    tried, done = shop(*words, "--dry-run"), shop(*words, "--yes")
    found = [json.loads(each.stdout) for each in (tried, done)]
    assert [each["chosen"] for each in found] == [{"OrderPad": 1, "OrderPlacd": 1}] * 2
    assert [(each["done"], each["missing"]) for each in found] == [(2, ["b", "a"])] * 2
    assert len(json.loads(shop("unrouted", "show", "--json").stdout)) == 2


def headway(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headway.apps.cli", "unrouted", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


async def test_before_the_first_service_a_broker_needs_no_file_of_the_store(
    tmp_path: Path, rabbitmq_vhost: str
) -> None:
    store = tmp_path / "new.db"
    settings = {"HEADWAY_BUS": rabbitmq_vhost, "HEADWAY_STORE": f"sqlite:///{store}"}
    await published(rabbitmq_vhost, 2)
    done = headway("purge", TYPE, "--yes", "--json", **settings)
    assert (done.returncode, json.loads(done.stdout)["done"]) == (0, 2), done.stderr
    (entry,) = entries(headway("history", "--json", **settings))
    assert (entry["what"], entry["done"], store.exists()) == ("purge", 2, False)
    assert entries(headway("history", "--json", HEADWAY_BUS=rabbitmq_vhost)) == [entry]


def entries(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
