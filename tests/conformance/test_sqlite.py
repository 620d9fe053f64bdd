"""The shipped suites, on SQLite."""

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from headway.clock import SystemChance, SystemClock
from headway.testing.engines import SqliteEngine, sqlite_engine
from headway.testing.ports import Engine
from tests.conformance import suites
from tests.engines.pairs.harnesses import StoreHarness

NO_PROCESS = 2**22 + 1
"""Linux gives no process a number as high as this."""


class SqliteHarness(StoreHarness):
    moment = timedelta(seconds=0.1)
    lacks = frozenset()

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.wall_clock_step = timedelta()
        self.clock = self.new_clock()
        self.engines: list[SqliteEngine] = []

    async def open_engine(self) -> Engine:
        engine = sqlite_engine(self.path, self.clock, SystemChance(), synchronous="off")
        self.engines.append(engine)
        return engine

    def new_clock(self) -> SystemClock:
        """Give the clock of a process that starts now."""
        return SystemClock(wall=lambda: time.time() + self.wall_clock_step.total_seconds())

    async def set_clock(self, step: timedelta) -> None:
        self.wall_clock_step += step
        self.clock = self.new_clock()

    async def kill(self, engine: Engine) -> None:
        assert isinstance(engine, SqliteEngine)
        engine.bus.liveness.stop()
        with closing(sqlite3.connect(self.path)) as connection, connection:
            token = engine.bus._worker.token
            connection.execute(
                "update headway_workers set pid = ? where token = ?", (NO_PROCESS, token)
            )
        bystander = sqlite_engine(self.path, self.clock, SystemChance())
        assert bystander.bus.liveness.look() == 1
        bystander.bus.liveness.stop()

    async def remove_by_hand(self, operation: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("delete from headway_items where operation = ?", (operation,))

    async def close(self) -> None:
        for engine in self.engines:
            await engine.bus.close()


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "headway.db")
    yield harness
    await harness.close()


class TestBus(suites.Bus): ...


class TestStore(suites.Store): ...


class TestSweeping(suites.Sweeping): ...
