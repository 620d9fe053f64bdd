"""The shipped suites on RabbitMQ, with SQLite as the store beside it."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from headway.testing.conformance.commit import CommitConformance
from headway.testing.conformance.harness import Capability
from headway.testing.conformance.letters import LettersConformance
from headway.testing.conformance.places import PlacesConformance
from headway.testing.conformance.unrouted import UnroutedConformance
from headway.testing.engines import sqlite_store, with_store
from headway.testing.ports import Engine
from tests.engines.pairs.harnesses import StoreHarness
from tests.engines.rabbitmq.engine import RabbitEngineHarness

pytestmark = pytest.mark.usefixtures("coarse_delays")


class RabbitStoreHarness(StoreHarness):
    moment = timedelta(seconds=0.2)
    lacks = RabbitEngineHarness.lacks - {Capability.RECORDS}

    def __init__(self, url: str, path: Path) -> None:
        super().__init__(path)
        self.rabbit = RabbitEngineHarness(url)
        self.clock = self.rabbit.clock
        self.engines: list[Engine] = []

    async def open_engine(self) -> Engine:
        store = sqlite_store(self.path, self.clock, synchronous="off")
        engine = with_store(self.rabbit.open_parts(), store)
        self.engines.append(engine)
        return engine

    async def kill(self, engine: Engine) -> None:
        await self.rabbit.kill(engine)

    async def close(self) -> None:
        for engine in self.engines:
            await engine.close()


@pytest.fixture
async def harness(rabbitmq_vhost: str, tmp_path: Path) -> AsyncIterator[RabbitStoreHarness]:
    harness = RabbitStoreHarness(rabbitmq_vhost, tmp_path / "store.db")
    yield harness
    await harness.close()


class TestCommit(CommitConformance): ...


class TestLetters(LettersConformance): ...


class TestPlaces(PlacesConformance): ...


class TestUnrouted(UnroutedConformance): ...
