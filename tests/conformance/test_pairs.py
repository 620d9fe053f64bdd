"""The shipped suites, on engines of two systems."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.testing.conformance.letters import LettersConformance
from headway.testing.conformance.places import PlacesConformance
from headway.testing.conformance.units import UnitsConformance
from tests.conformance import suites
from tests.engines.pairs.harnesses import BusHarness, StoreHarness


class TestWithStore(suites.Bus, suites.Store):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[StoreHarness]:
        harness = StoreHarness(tmp_path / "store.db")
        yield harness
        await harness.close()


class TestWithoutStore(suites.Bus, UnitsConformance, LettersConformance, PlacesConformance):
    @pytest.fixture
    def harness(self) -> BusHarness:
        return BusHarness()
