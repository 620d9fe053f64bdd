"""Engines on which sweeps are tried."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.testing.engines import mongodb_store, postgres_store
from tests.behaviour.sweeps import OpenEngine, Yard, beside, in_a_file, in_memory

ENGINES = [
    "memory",
    "sqlite",
    pytest.param("mongodb", marks=pytest.mark.server("mongodb")),
    pytest.param("postgres", marks=pytest.mark.server("postgresql")),
]


@pytest.fixture(params=ENGINES)
async def yard(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Yard]:
    """Stuck documents, on every engine that can be swept.

    Time is virtual, and leases go by the clock of the store, so no test with this fixture waits
    for the end of a lease by name.
    """
    yard = Yard(_opening(request, tmp_path))
    yield yard
    await yard.close()


def _opening(request: pytest.FixtureRequest, folder: Path) -> OpenEngine:
    match request.param:
        case "memory":
            return in_memory()
        case "sqlite":
            return in_a_file(folder)
        case "mongodb":
            url: str = request.getfixturevalue("mongodb_database")
            return beside(lambda clock: mongodb_store(url, clock))
        case _:
            url = request.getfixturevalue("postgres_database")
            return beside(lambda clock: postgres_store(url, clock))


@pytest.fixture
async def quick() -> AsyncIterator[Yard]:
    """The same in memory, where time only passes while every task waits."""
    yard = Yard(in_memory())
    yield yard
    await yard.close()
