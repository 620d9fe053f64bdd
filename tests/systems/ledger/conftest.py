"""A ledger for each test, on SQLite and on PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.systems.ledger.ledgers import Ledger, a_ledger


@pytest.fixture
def sqlite_database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database."""
    name = "sqlite_database" if request.param == "sqlite" else "postgres_database"
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[Ledger]:
    async with a_ledger(database) as ledger:
        yield ledger


@pytest.fixture
async def sqlite_ledger(sqlite_database: str) -> AsyncIterator[Ledger]:
    async with a_ledger(sqlite_database) as ledger:
        yield ledger
