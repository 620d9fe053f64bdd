"""The same suites on every engine that keeps sequences."""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
import redis

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
from headway.testing.ports import SequenceEngine
from headway.testing.servers import Redis
from headway.testing.servers.process import wait_until

Make = Callable[[VirtualClock, SequenceSettings], SequenceEngine]


class Harness(SequencesHarness):
    def __init__(self, make: Make) -> None:
        self.clock = VirtualClock()
        self._make = make
        self._opened: list[SequenceEngine] = []

    async def open_sequences(self, settings: SequenceSettings) -> SequenceEngine:
        self._opened.append(self._make(self.clock, settings))
        return self._opened[-1]

    async def close(self) -> None:
        for engine in self._opened:
            await engine.close()


@pytest.fixture
async def harness(make: Make) -> AsyncIterator[Harness]:
    harness = Harness(make)
    yield harness
    await harness.close()


class TestMemory(SequencesConformance):
    @pytest.fixture
    def make(self) -> Make:
        shelf = MemoryShelf()
        return lambda clock, settings: MemorySequences(clock, settings, shelf)


class TestSqlite(SequencesConformance):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        path = tmp_path / "headway.db"
        return lambda clock, settings: sqlite_sequences(path, clock, settings, synchronous="off")


class TestSqliteReadingSome(TestSqlite):
    """Only some of the held results of a key are read, as where it holds many."""

    @pytest.fixture(autouse=True)
    def _none_are_few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headway.adapters.sqlite.sequence_rows.FEW", 0)


@pytest.mark.server("redis")
class TestRedis(SequencesConformance):
    @pytest.fixture
    def make(self, redis_database: str) -> Make:
        return lambda clock, settings: redis_sequences(redis_database, settings, clock=clock)


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


@pytest.mark.server("redis")
class TestCluster(SequencesConformance):
    prefixes = count()

    @pytest.fixture
    def make(self, redis_cluster: str) -> Make:
        prefix = f"p{next(self.prefixes)}"
        return lambda clock, settings: clustered_sequences(
            redis_cluster, settings, prefix=prefix, clock=clock
        )
