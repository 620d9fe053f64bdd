import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headway.adapters.sqlite.records import row_of, write
from headway.adapters.sqlite.timeline import Moment
from headway.clock import SystemChance, SystemClock
from headway.testing.conformance.bus import BusConformance
from headway.testing.conformance.candidates import CandidatesConformance
from headway.testing.conformance.commit import CommitConformance
from headway.testing.conformance.desk import DeskConformance
from headway.testing.conformance.documents import DocumentsConformance
from headway.testing.conformance.harness import EngineHarness
from headway.testing.conformance.history import HistoryConformance
from headway.testing.conformance.leases import LeasesConformance
from headway.testing.conformance.letters import LettersConformance
from headway.testing.conformance.places import PlacesConformance
from headway.testing.conformance.records import RecordsConformance
from headway.testing.conformance.totals import TotalsConformance
from headway.testing.conformance.unrouted import UnroutedConformance
from headway.testing.engines import SqliteEngine, sqlite_engine
from headway.testing.ports import DoneRecord, Engine

NO_PROCESS = 2**22 + 1
"""Linux gives no process a number as high as this."""


class SqliteHarness(EngineHarness):
    moment = timedelta(seconds=0.1)

    def __init__(self, path: Path) -> None:
        self.wall_clock_step = timedelta()
        self.clock = self.new_clock()
        self.path = path
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

    async def keep_record(self, record: DoneRecord) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            assert write(connection, [row_of(record, "0", Moment(self.clock.now()))])

    def write_row(self, session: Any, text: str) -> None:
        session.execute("create table if not exists own (text)")
        session.execute("insert into own values (?)", (text,))

    async def rows(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as connection:
            there = connection.execute("select 1 from sqlite_master where name = 'own'").fetchone()
            query = "select text from own order by rowid"
            return [text for (text,) in connection.execute(query)] if there else []

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


class TestBus(BusConformance): ...


class TestCommit(CommitConformance): ...


class TestDocuments(DocumentsConformance): ...


class TestCandidates(CandidatesConformance): ...


class TestDesk(DeskConformance): ...


class TestHistory(HistoryConformance): ...


class TestLeases(LeasesConformance): ...


class TestTotals(TotalsConformance): ...


class TestLetters(LettersConformance): ...


class TestPlaces(PlacesConformance): ...


class TestUnrouted(UnroutedConformance): ...


class TestRecords(RecordsConformance): ...
