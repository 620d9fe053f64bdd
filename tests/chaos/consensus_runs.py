"""Runs of the mail pipeline in worker processes, and what is there when one has come to its end."""

import asyncio
import contextlib
import hashlib
import json
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from headway import connect
from headway.assembly.connection import Connection
from headway.operations import Letter
from headway.systems.consensus.lifecycles import LIFECYCLES
from headway.systems.consensus.models.embedder import open_embedder
from headway.systems.consensus.pipeline import SERVICES
from headway.systems.consensus.settings import ConsensusSettings
from headway.systems.consensus.status import FAILED_QUEUES
from headway.systems.consensus.vectors.store import open_vectors
from headway.testing.servers.loopback import http_request
from tests.chaos.broker import BrokerSite
from tests.chaos.running import HEADWAY, Site

PIPELINE = "headway.systems.consensus.pipeline"
NAMES = tuple(service.name for service in SERVICES)
_ALL = 10_000_000


@dataclass(frozen=True)
class FinalSet:
    """What a run has made of its archives. Whatever happened on the way, it must be the same."""

    messages: frozenset[str]
    chunks: frozenset[str]
    vectors: frozenset[str]
    summaries: Mapping[str, str | None]
    """The current one of each thread."""
    pages: Mapping[str, str]
    """A hash of the page of each thread."""

    def differences(self, other: "FinalSet") -> dict[str, list[object]]:
        """Name what only one of two runs has, the first ones of each kind."""
        mine, its = self._items(), other._items()
        found = {name: sorted(mine[name] ^ its[name], key=str)[:5] for name in mine}
        return {name: astray for name, astray in found.items() if astray}

    def _items(self) -> dict[str, set[object]]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: set(value.items() if isinstance(value, Mapping) else value)
            for name, value in values.items()
        }

    def __str__(self) -> str:
        return (
            f"{len(self.messages)} messages, {len(self.chunks)} chunks, {len(self.vectors)} "
            f"vectors, {len(self.summaries)} threads"
        )


@dataclass(frozen=True)
class ConsensusSite(Site):
    """A folder with the pipeline on the embedded default."""

    @property
    def environment(self) -> dict[str, str]:
        own = {"CONSENSUS_DATA": str(self.settings.data), "CONSENSUS_TIME_SCALE": "0.03"}
        return {**super().environment, **own}

    @property
    def settings(self) -> ConsensusSettings:
        return ConsensusSettings(data=self.folder / "data")

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        """Open the engine that the processes of this site have."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                if name.startswith("HEADWAY_"):
                    patch.setenv(name, value)
            async with connect() as headway:
                yield headway

    async def submit(self, *paths: Path) -> None:
        """Have archives read; who reads them may come later."""
        async with self.connected() as headway:
            await headway.declare(*SERVICES)
            for path in paths:
                data = {"path": str(path), "source_name": path.name}
                assert await headway.publish("ArchiveSubmitted", data) == 1

    async def at_rest(self, seconds: float) -> None:
        """Wait until nothing is on its way any more."""
        async with self.connected() as headway:
            try:
                async with asyncio.timeout(seconds):
                    while not await self._is_at_rest(headway):  # noqa: ASYNC110 (nobody tells)
                        await asyncio.sleep(0.1)
            except TimeoutError:
                waiting = [each for each in (await headway.balance()).queues if each.waiting]
                pytest.fail(f"still on its way: {waiting}\n{self.log()[-3000:]}")

    async def _is_at_rest(self, headway: Connection) -> bool:
        return not (await headway.balance()).waiting

    async def final_set(self) -> FinalSet:
        async with self.connected() as headway:
            found = {
                name: await headway.find(name, limit=_ALL)
                for name in ("messages", "chunks", "threads")
            }
        vectors = open_vectors(self.settings, open_embedder(self.settings).model)
        try:
            return FinalSet(
                messages=frozenset(each["_id"] for each in found["messages"]),
                chunks=frozenset(each["_id"] for each in found["chunks"]),
                vectors=frozenset(vectors.ids()),
                summaries={each["_id"]: each["summary_id"] for each in found["threads"]},
                pages={
                    page.stem: hashlib.sha256(page.read_bytes()).hexdigest()
                    for page in self.settings.reports.glob("*.md")
                },
            )
        finally:
            vectors.close()

    async def states(self) -> dict[str, Counter[str]]:
        """Count the documents of each collection by their state."""
        async with self.connected() as headway:
            return {
                each.collection: Counter(
                    each.state(document).value
                    for document in await headway.find(each.collection, limit=_ALL)
                )
                for each in LIFECYCLES
            }

    async def all_letters(self) -> list[tuple[str, Letter]]:
        """Give every letter, with its failed queue."""
        async with self.connected() as headway:
            return [
                (queue, letter)
                for queue in FAILED_QUEUES
                async for letter in headway.failed.export(queue)
            ]

    async def superseded(self, letters: list[tuple[str, Letter]]) -> Mapping[str, str]:
        async with self.connected() as headway:
            return await headway.failed.superseded([letter for _, letter in letters])

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Run a command of headway; whoever starts it has to end it."""
        with (self.folder / "run.log").open("ab") as log:
            return subprocess.Popen(
                [*HEADWAY, *arguments],
                env=self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )


@dataclass(frozen=True)
class ConsensusBrokerSite(ConsensusSite, BrokerSite):
    """The pipeline on a broker and a store."""

    store: str = ""
    management_port: int = 0

    @property
    def environment(self) -> dict[str, str]:
        sweeps = {
            "RETRY_JOB_INTERVAL_SECONDS": "5",
            "RETRY_JOB_BASE_DELAY_SECONDS": "5",
            "RETRY_JOB_MAX_DELAY_SECONDS": "20",
            "RETRY_JOB_STUCK_THRESHOLD_HOURS": "0.0167",
            "RETRY_JOB_GRACE_SECONDS": "60",
            "RETRY_JOB_CLAIM_SECONDS": "10",
            "RETRY_JOB_CAP_AFTER_DOWNTIME": "0",
        }
        # Leases of 12 s: servers that are started again are away for longer than a moment.
        own = {"HEADWAY_STORE": self.store, "CONSENSUS_TIME_SCALE": "0.2"}
        return {**super().environment, **sweeps, **own}

    async def _is_at_rest(self, headway: Connection) -> bool:
        """Look three times: what the broker says of events in hand is a second old."""
        for _ in range(3):
            await asyncio.sleep(1)
            if self._in_hand() or (await headway.balance()).waiting:
                return False
        for collection in ("archives", "slices", "messages", "threads"):
            for status in ("pending", "failed"):
                if await headway.find(collection, {"status": status}, limit=1):
                    return False
        return not await headway.find("chunks", {"embedding_generated": False}, limit=1)

    def _in_hand(self) -> int:
        """Count what workers have taken and not settled."""
        vhost = self.url.rpartition("/")[2]
        path = f"/api/queues/{vhost}"
        _, said = http_request("GET", self.management_port, path, login="guest:guest")
        return sum(each.get("messages_unacknowledged", 1) for each in json.loads(said))


@contextlib.contextmanager
def ended_by_force(*processes: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave nothing behind, whatever fails."""
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
