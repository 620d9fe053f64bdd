"""A real file with letters in it, and `headway` run on it as it is typed."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from headway import Service
from headway.clock import SystemChance, SystemClock
from headway.retrying import FloodRule
from headway.testing.engines import Publisher, Worker, sqlite_engine
from headway.testing.facts import Recorder
from headway.testing.ports import Engine
from headway.testing.trial import at_rest
from tests.commands import app

CLOCK, CHANCE = SystemClock(), SystemChance()
NO_FLOOD = FloodRule(at_least=1_000_000)
NASTY = "\x1b[2Jcleared\x9b31m\u202eright\nsecond line"


def services(effects: list[Any], *, broken: bool) -> Sequence[Service]:
    """Give services of which one fails for good while it is broken."""
    parsing, chunking = Service("parsing", flood=NO_FLOOD, version="v7"), Service("chunking")

    @parsing.on("ArchiveIngested", failed="ParsingFailed")
    async def parse(event: Any, work: Any) -> None:
        if broken and event.data.get("bad"):
            raise ValueError(f"bad archive: {event.data['bad']}")
        effects.append(event.data)
        work.documents("parsed").add(dict(event.data))

    @chunking.on("JSONParsed", documents=("messages", "message_doc_ids"))
    async def chunk(event: Any, work: Any) -> None:
        if broken:
            raise ValueError("bad messages")
        effects.append(event.data)

    return parsing, chunking


class ShopFile:
    """An engine on a file, and commands on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "headway.db"
        self.effects: list[Any] = []

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def fill(
        self,
        *data: Mapping[str, Any],
        raw: bytes | None = None,
        event_type: str = "ArchiveIngested",
    ) -> None:
        """Publish events and let a broken service end them."""

        async def publish(engine: Engine) -> None:
            publisher = Publisher(engine.bus, CLOCK, CHANCE)
            if data:
                await publisher.publish_all([(event_type, each) for each in data])
            if raw is not None:
                await publisher.publish_bytes(raw, "ArchiveIngested")

        self.work(broken=True, first=publish)

    def put(self, collection: str, one: str, **fields: Any) -> None:
        """Write a document as another client does."""
        with sqlite3.connect(self.path) as file:
            file.execute(
                "insert or replace into headway_documents (collection, id, body) values (?, ?, ?)",
                (collection, one, json.dumps({"_id": one, **fields})),
            )
        file.close()

    def documents(self, collection: str) -> list[Any]:
        with sqlite3.connect(self.path) as file:
            found = file.execute(
                "select body from headway_documents where collection = ?", (collection,)
            ).fetchall()
        file.close()
        return [json.loads(body) for (body,) in found]

    def work(self, *, broken: bool = False, first: Any = None) -> None:
        """Let a worker run until every event has ended."""

        async def run() -> None:
            engine = sqlite_engine(self.path, CLOCK, CHANCE)
            worker = Worker(
                services(self.effects, broken=broken),
                engine,
                clock=CLOCK,
                chance=CHANCE,
                observer=Recorder(),
            )
            asked = sqlite_engine(self.path, CLOCK, CHANCE)
            declared = [q for s in services([], broken=broken) for q in s.queues()]
            await asked.bus.open(declared)
            if first is not None:
                await first(asked)
            task = asyncio.create_task(worker.run())
            while not at_rest(await asked.places.depths()):  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.01)
            worker.stop()
            await task
            await asked.bus.close()

        asyncio.run(run())

    def __call__(self, *words: str, stdin: bytes | str | None = None) -> Result:
        """Run a command in this process."""
        return CliRunner().invoke(app, [*words, "--bus", self.url], input=stdin)

    def typed(self, *words: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a command as a process of its own, in the folder of the file."""
        return subprocess.run(
            [sys.executable, "-m", "headway.apps.cli", *words],
            env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", "HOME": "/"},
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
