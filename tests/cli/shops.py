"""A real file with dead letters in it, and `headway` run on it as a person types it."""

import asyncio
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from headway import Service
from headway.apps.cli import main
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
COMMAND = (sys.executable, "-m", "headway.apps.cli")
WITH_CTRL_C = ("/usr/bin/env", "--default-signal=INT")
"""In the background of a shell Ctrl-C is ignored, and so it would be by a command."""
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/", "COLUMNS": "80"}
Done = subprocess.CompletedProcess[str]


def typed(
    *words: str,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> Done:
    """Run a command to its end as its process would, but in this one: that is much quicker.

    Only `headway run` gets a process of its own, which it ends itself.
    """
    given = {**ENVIRONMENT, **(environment or {})}
    if words[:1] == ("run",):
        return subprocess.run(
            [*COMMAND, *words],
            env=given,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    code: Any = 0
    with _elsewhere(folder or Path.cwd(), given), CliRunner().isolation(stdin) as streams:
        sys.argv = ["headway", *words]
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = (each.getvalue().decode() for each in streams[:2])
    return Done(words, code, out, err)


@contextmanager
def _elsewhere(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Have another folder and environment, and forget the modules that were loaded there."""
    argv, path, before, modules = sys.argv, [*sys.path], dict(os.environ), set(sys.modules)
    os.environ.clear()
    os.environ.update(environment)
    try:
        with chdir(folder):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        sys.argv, sys.path[:] = argv, path
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]


def asked(folder: Path, *words: str, answer: bytes | signal.Signals) -> tuple[int, str]:
    """Run a command at a terminal, answer its question, and give its code and what it said."""
    outer, inner = pty.openpty()
    command = [*WITH_CTRL_C, *COMMAND, *words]
    with subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, cwd=folder) as process:
        os.close(inner)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(outer, 1000)
        if isinstance(answer, bytes):
            os.write(outer, answer)
        else:
            process.send_signal(answer)
        code = process.wait(timeout=60)
    said += os.read(outer, 10_000)
    os.close(outer)
    return code, said.decode()


def unprintable(said: str) -> list[str]:
    """Give what would speak to a terminal."""
    return [one for one in said if not one.isprintable() and one != "\n"]


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
        declared: Sequence[Service] | None = None,
    ) -> None:
        """Publish events and let a broken service end them."""

        async def publish(engine: Engine) -> None:
            publisher = Publisher(engine.bus, CLOCK, CHANCE)
            if data:
                await publisher.publish_all([(event_type, each) for each in data])
            if raw is not None:
                await publisher.publish_bytes(raw, "ArchiveIngested")

        self.work(broken=True, first=publish, declared=declared)

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

    def work(
        self,
        *,
        broken: bool = False,
        first: Any = None,
        declared: Sequence[Service] | None = None,
    ) -> None:
        """Let a worker run until every event has ended."""
        given = declared or services(self.effects, broken=broken)

        async def run() -> None:
            engine = sqlite_engine(self.path, CLOCK, CHANCE)
            worker = Worker(given, engine, clock=CLOCK, chance=CHANCE, observer=Recorder())
            asked = sqlite_engine(self.path, CLOCK, CHANCE)
            await asked.bus.open([queue for service in given for queue in service.queues()])
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

    def typed(self, *words: str, stdin: str | None = None) -> Done:
        """Run a command as `headway` does, in the folder of the file."""
        return typed(*words, folder=self.folder, stdin=stdin)

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def verified(self, *words: str) -> Any:
        """Give what `headway verify` found, whatever the verdict is."""
        return json.loads(self("verify", "--json", *words).stdout)
