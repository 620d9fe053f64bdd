"""The same suites on every engine that keeps sequences."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
import redis

from headway.adapters.sqlite import sequence_rows
from headway.order import SequenceSettings
from headway.testing.clock import VirtualClock
from headway.testing.conformance.ordering import SequencesHarness
from headway.testing.conformance.sequences import SequencesConformance
from headway.testing.engines import (
    MemorySequences,
    MemoryShelf,
    clustered_sequences,
    redis_sequences,
    sqlite_sequences,
)
from headway.testing.ports import Offer, SequenceEngine
from headway.testing.servers import Redis
from headway.testing.servers.process import wait_until


class Harness(SequencesHarness):
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self._opened: list[SequenceEngine] = []

    async def open_sequences(self, settings: SequenceSettings) -> SequenceEngine:
        self._opened.append(self._made(settings))
        return self._opened[-1]

    async def close(self) -> None:
        for engine in self._opened:
            await engine.close()

    def _made(self, settings: SequenceSettings) -> SequenceEngine:
        raise NotImplementedError


class MemoryHarness(Harness):
    def __init__(self) -> None:
        super().__init__()
        self.shelf = MemoryShelf()

    def _made(self, settings: SequenceSettings) -> SequenceEngine:
        return MemorySequences(self.clock, settings, self.shelf)


class SqliteHarness(Harness):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def _made(self, settings: SequenceSettings) -> SequenceEngine:
        return sqlite_sequences(self.path, self.clock, settings, synchronous="off")


class RedisHarness(Harness):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def _made(self, settings: SequenceSettings) -> SequenceEngine:
        return redis_sequences(self.url, settings, clock=self.clock)


class ClusterHarness(RedisHarness):
    prefixes = count()

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.prefix = f"p{next(self.prefixes)}"

    def _made(self, settings: SequenceSettings) -> SequenceEngine:
        return clustered_sequences(self.url, settings, prefix=self.prefix, clock=self.clock)


class RedisNode(Redis):
    """A cluster of one: it refuses calls about keys of different slots as any other does."""

    def _command(self) -> list[str]:
        command = super()._command()
        at = command.index("--databases")
        return [*command[:at], *command[at + 2 :], "--cluster-enabled", "yes"]


@pytest.fixture(scope="module")
def redis_cluster(redis_server: Redis) -> Iterator[str]:
    with RedisNode() as server, redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16_383)
        ok = lambda: client.cluster("info")["cluster_state"] == "ok"  # noqa: E731
        assert wait_until(ok, timedelta(seconds=20))
        yield server.url


class OnMemory:
    @pytest.fixture
    async def harness(self) -> AsyncIterator[Harness]:
        harness = MemoryHarness()
        yield harness
        await harness.close()


class OnSqlite:
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[Harness]:
        harness = SqliteHarness(tmp_path / "headway.db")
        yield harness
        await harness.close()


@pytest.mark.server("redis")
class OnRedis:
    @pytest.fixture
    async def harness(self, redis_database: str) -> AsyncIterator[Harness]:
        harness = RedisHarness(redis_database)
        yield harness
        await harness.close()


@pytest.mark.server("redis")
class OnCluster:
    @pytest.fixture
    async def harness(self, redis_cluster: str) -> AsyncIterator[Harness]:
        harness = ClusterHarness(redis_cluster)
        yield harness
        await harness.close()


class TestMemory(OnMemory, SequencesConformance): ...


class TestSqlite(OnSqlite, SequencesConformance): ...


class TestSqliteReadingSome(OnSqlite, SequencesConformance):
    """Only some of the held results of a key are read, as where it holds many."""

    @pytest.fixture(autouse=True)
    def _none_are_few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sequence_rows, "FEW", 0)


class TestRedis(OnRedis, SequencesConformance): ...


class TestCluster(OnCluster, SequencesConformance): ...


@pytest.mark.server("redis")
async def test_a_cluster_says_once_what_it_can_lose(
    redis_cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    sequences = clustered_sequences(redis_cluster, prefix="losses")
    for token in ("a", "b"):
        await sequences.offer([Offer(key, 1, b"", token) for key in "xyz"])
    await sequences.close()
    lines = [(record.levelname, "appendfsync is" in record.message) for record in caplog.records]
    assert lines == [("WARNING", True)]
