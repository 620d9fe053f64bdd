"""Letters that were overtaken, on RabbitMQ with a file as the store, through the front door."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headway import ConfigurationError
from headway.core.writes import ID
from headway.testing.engines import Publisher, Worker, open_engine
from headway.testing.facts import Recorder
from headway.testing.ports import Engine
from tests.cli.shops import CHANCE, CLOCK, ShopFile, services
from tests.commands import app

FAILED = "chunking.failed"


class BrokerShop(ShopFile):
    """Events in a broker, documents in the file beside it."""

    def __call__(self, *words: str, stdin: bytes | str | None = None) -> Result:
        return CliRunner().invoke(app, [*words], input=stdin)

    def run(
        self,
        *,
        broken: bool,
        first: Callable[[Engine], Awaitable[None]],
        until: Callable[[Engine], Awaitable[bool]],
    ) -> None:
        """Let a worker run until something holds."""

        async def work() -> None:
            asked = open_engine()
            await asked.open([q for s in services([], broken=broken) for q in s.queues()])
            await first(asked)
            worker = Worker(
                services(self.effects, broken=broken),
                open_engine(),
                clock=CLOCK,
                chance=CHANCE,
                observer=Recorder(),
            )
            task = asyncio.create_task(worker.run())
            while not await until(asked):  # noqa: ASYNC110 (another system)
                await asyncio.sleep(0.02)
            worker.stop()
            await task
            await asked.close()

        asyncio.run(asyncio.wait_for(work(), 60))


@pytest.fixture
def shop(rabbitmq_vhost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerShop:
    shop = BrokerShop(tmp_path)
    monkeypatch.setenv("HEADWAY_BUS", rabbitmq_vhost)
    monkeypatch.setenv("HEADWAY_STORE", shop.url)
    return shop


async def nothing(_: Engine) -> None:
    """Begin with what is there."""


def fail(shop: BrokerShop, *ids: str) -> None:
    """Let an event about each document end as a letter."""

    async def publish(engine: Engine) -> None:
        for one in ids:
            shop.put("messages", one, status="pending")
        events = [("JSONParsed", {"message_doc_ids": [one]}) for one in ids]
        await Publisher(engine.bus, CLOCK, CHANCE).publish_all(events)

    async def all_failed(engine: Engine) -> bool:
        return any(q.letters == len(ids) for q in await engine.letters.queues() if q.name == FAILED)

    shop.run(broken=True, first=publish, until=all_failed)


def found(shop: BrokerShop) -> dict[str, Any]:
    letters = json.loads(shop("failed", "inspect", "messages.failed", "--json").stdout)
    return {letter["document_ids"][0]: letter for letter in letters}


def test_what_is_superseded_is_shown_and_skipped_unless_one_insists(shop: BrokerShop) -> None:
    fail(shop, "processed", "swept", "reset", "as it was")
    documents = {each[ID]: each for each in shop.documents("messages")}
    assert {each["status"] for each in documents.values()} == {"failed"}
    assert {each["permanentFailure"]["rule"] for each in documents.values()} == {
        "python.validation"
    }
    shop.put("messages", "processed", **{**documents["processed"], "status": "processed"})
    shop.put("messages", "swept", **{**documents["swept"], "lastOperation": "sweep-1:messages:x"})
    assert shop("documents", "reset", "messages", "reset").exit_code == 0

    (listed,) = [
        each
        for each in json.loads(shop("failed", "list", "--json").stdout)
        if each["queue"] == FAILED
    ]
    assert (listed["letters"], listed["superseded"]) == (4, 2)
    letters = found(shop)
    assert {one: letter["superseded"] for one, letter in letters.items()} == {
        "processed": True,
        "swept": True,
        "reset": False,  # it begins anew, and its letter is one way to do so
        "as it was": False,
    }
    assert shop("failed", "inspect", "chunking").stdout.count("  superseded ") == 2
    done = shop("failed", "requeue", "chunking")
    assert done.exit_code == 1
    assert "2 of 4 letters of chunking.failed requeued" in done.stdout
    for one in ("processed", "swept"):
        assert f"{letters[one]['letter_id']} was skipped: superseded: " in done.stdout
    done = shop("failed", "requeue", "chunking", "--superseded")
    assert (done.exit_code, "1 of 2 letters" in done.stdout) == (1, True)
    would_not = f"{letters['processed']['letter_id']} was skipped: it would not run: messages "
    assert would_not in done.stdout

    async def all_done(engine: Engine) -> bool:
        stored = await engine.documents.find("messages", {"status": "processed"}, 10)
        return len(stored) == 4 and not (await engine.places.depths()).waiting

    shop.run(broken=False, first=nothing, until=all_done)
    stored = shop.documents("messages")
    assert [each[ID] for each in stored if each.get("permanentFailure")] == ["processed"]
    ran = sorted(each["message_doc_ids"][0] for each in shop.effects)
    assert ran == ["as it was", "reset", "swept"]  # and never what is processed
    assert list(found(shop)) == ["processed"]  # it stays, for a person to decide


def test_who_has_no_store_decides_nothing_about_letters_of_a_service_that_has_one(
    shop: BrokerShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(shop, "one", "two")
    monkeypatch.delenv("HEADWAY_STORE")
    decide = partial(shop, "failed")
    for command in (["requeue"], ["requeue", "--dry-run"], ["purge", "--yes"]):
        refused = decide(*command, "chunking")
        assert isinstance(refused.exception, ConfigurationError)
        cure = "set HEADWAY_STORE as for the workers, or mean it: --without-store"
        assert cure in str(refused.exception)
    assert {each["superseded"] for each in found(shop).values()} == {None}
    assert "superseded is unknown: only the store" in decide("inspect", "chunking").stdout
    listed = decide("list").stdout
    assert "superseded: unknown of chunking.failed: only the store" in listed
    assert "newest" not in listed  # nobody can know it
    for command in (["requeue", "--limit", "1"], ["purge", "--yes"]):
        meant = decide(*command, "chunking", "--without-store")
        assert (meant.exit_code, "1 of 1 letter of chunking.failed" in meant.stdout) == (0, True)
