"""A file of SQLite, and the engines that were opened on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.test_sqlite import SqliteHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "headway.db")
    yield harness
    await harness.close()
