"""The shipped suites, on engines of two systems."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.testing.conformance.bus import BusConformance
from headway.testing.conformance.candidates import CandidatesConformance
from headway.testing.conformance.commit import CommitConformance
from headway.testing.conformance.desk import DeskConformance
from headway.testing.conformance.documents import DocumentsConformance
from headway.testing.conformance.history import HistoryConformance
from headway.testing.conformance.leases import LeasesConformance
from headway.testing.conformance.letters import LettersConformance
from headway.testing.conformance.places import PlacesConformance
from headway.testing.conformance.records import RecordsConformance
from headway.testing.conformance.totals import TotalsConformance
from headway.testing.conformance.units import UnitsConformance
from headway.testing.conformance.unrouted import UnroutedConformance
from tests.engines.pairs.harnesses import BusHarness, StoreHarness


class TestWithStore(
    BusConformance,
    CommitConformance,
    DocumentsConformance,
    LettersConformance,
    PlacesConformance,
    RecordsConformance,
    UnroutedConformance,
):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[StoreHarness]:
        harness = StoreHarness(tmp_path / "store.db")
        yield harness
        await harness.close()


class TestSweeping(
    CandidatesConformance,
    DeskConformance,
    HistoryConformance,
    LeasesConformance,
    TotalsConformance,
):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[StoreHarness]:
        harness = StoreHarness(tmp_path / "store.db")
        yield harness
        await harness.close()


class TestWithoutStore(
    BusConformance, UnitsConformance, LettersConformance, PlacesConformance, UnroutedConformance
):
    @pytest.fixture
    def harness(self) -> BusHarness:
        return BusHarness()
