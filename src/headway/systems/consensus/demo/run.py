"""The demonstration from its beginning to its end, and whether all was as promised."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from headway import connect
from headway.clock import CLOCK
from headway.operations import Letter
from headway.systems.consensus.demo.archives import prepare
from headway.systems.consensus.demo.by_hand import File
from headway.systems.consensus.demo.hearing import Heard
from headway.systems.consensus.demo.script import Requeued, Script
from headway.systems.consensus.demo.story import Fault, Story
from headway.systems.consensus.demo.worker import services
from headway.systems.consensus.models.embedder import open_embedder
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.status import Status, read_status
from headway.systems.consensus.vectors.store import open_vectors
from headway.systems.consensus.workers import Workers

WORKERS = 2
_LATE = 24
_WORKER = (sys.executable, "-P", "-m", "headway.systems.consensus.demo.worker")
_FOREIGN = ("CONSENSUS_", "HEADWAY_", "RETRY_", "EVENT_RETRY_", "RABBITMQ_", "MONGODB_")
_SHORT = {
    "CONSENSUS_TIME_SCALE": "0.1",
    "RETRY_MAX_ATTEMPTS": "20",
    "RETRY_BASE_DELAY_MS": "2000",
    "RETRY_MAX_DELAY_SECONDS": "20",
    "RETRY_JOB_GRACE_SECONDS": "1",
    "ERROR_REPORTER_TYPE": "noop",
    "METRICS_BACKEND": "noop",
}
"""Waits that one can watch. RETRY_* are scaled too: the first wait is 0.2 s at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """What `headway verify` says."""

    places: Mapping[str, int | None]
    accepted: int | None
    difference: int | None
    missing: Sequence[str]
    """The first operations that were accepted and are nowhere."""
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """How it is played."""

    data: Path
    months: int
    environment: Mapping[str, str]
    sweep: Sequence[str]
    """The command that sweeps once, and says in JSON what it did."""
    verify: Callable[[str], Awaitable[Books]]
    """Ask for the books of the engine at a URL."""

    @property
    def bus(self) -> str:
        return f"sqlite:///{quote(str(self.data / 'headway.db'))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of it."""

    seconds: float
    messages: int
    threads: int
    faults: Sequence[Fault]
    status: Status
    pages: int
    vectors: int
    books: Books
    letters: Sequence[Letter]

    def shortcomings(self) -> list[str]:
        """Say what is not as promised; nothing, if all is well."""
        found = [f"{each.name}: {each.happened}" for each in self.faults if not each.seen]
        states = {each.collection: each.states for each in self.status.collections}
        done = {name: its.get("processed", 0) for name, its in states.items()}
        chunks = sum(states["chunks"].values())
        wanted = {
            "messages": (done["messages"], self.messages),
            "chunks": (done["chunks"], chunks),
            "threads": (done["threads"], self.threads),
            "summaries": (done["summaries"], self.threads),
            "pages": (self.pages, self.threads),
            "vectors": (self.vectors, chunks),
            "letters": (sum(each.letters for each in self.status.failed), 1),
            "events that still wait": (sum(self.status.waiting.values()), 0),
            "events that no service takes": (self.books.places.get("unrouted", 0), 0),
        }
        found += [
            f"{name}: {is_} instead of {to_be}"
            for name, (is_, to_be) in wanted.items()
            if is_ != to_be
        ]
        if not self.books.ok:
            found.append(f"the books do not balance: the difference is {self.books.difference}")
        return found


async def play(demo: Demo, story: Story) -> Played:
    """Play it."""
    began = CLOCK.now()

    def seconds() -> float:
        return (CLOCK.now() - began).total_seconds()

    environment = {
        name: value for name, value in demo.environment.items() if not name.startswith(_FOREIGN)
    } | {**_SHORT, "CONSENSUS_DATA": str(demo.data), "HEADWAY_BUS": demo.bus}
    settings = ConsensusSettings.from_mapping(environment)
    inbox = demo.data / "inbox"
    inbox.mkdir(parents=True)
    prepared = await asyncio.to_thread(prepare, inbox, demo.months, _LATE, began)
    story.messages, story.threads = prepared.messages, prepared.threads
    heard = Heard(seconds)

    async def is_missed(operation: str) -> bool:
        return operation in (await demo.verify(demo.bus)).missing

    async with connect(demo.bus) as headway:
        await headway.declare(*services(settings))
    async with Workers(
        WORKERS,
        environment=environment,
        log=demo.data / "workers.log",
        on_told=heard.take,
        command=_WORKER,
    ) as workers:
        script = Script(
            settings=settings,
            bus=demo.bus,
            file=File(demo.data / "headway.db"),
            prepared=prepared,
            story=story,
            heard=heard,
            workers=workers,
            is_missed=is_missed,
            sweep=lambda: _sweep(demo.sweep, environment),
        )
        await script.run()
    script.look()
    async with connect(demo.bus) as headway:
        letters = await headway.failed.inspect("parsing.failed")
    return Played(
        seconds=seconds(),
        messages=prepared.messages,
        threads=prepared.threads,
        faults=script.faults.all(),
        status=await read_status(demo.bus),
        pages=sum(each.stem != "index" for each in settings.reports.glob("*.html")),
        vectors=_count_vectors(settings),
        books=await demo.verify(demo.bus),
        letters=letters,
    )


def _count_vectors(settings: ConsensusSettings) -> int:
    with closing(open_vectors(settings, open_embedder(settings).model)) as vectors:
        return len(vectors.ids())


async def _sweep(command: Sequence[str], environment: Mapping[str, str]) -> Requeued:
    child = await asyncio.create_subprocess_exec(
        *command,
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    said, _ = await child.communicate()
    return {each["collection"]: each["requeued"] for each in json.loads(said)}
