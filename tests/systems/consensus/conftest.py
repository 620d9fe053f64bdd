"""Archives, and what ingestion and parsing make of them."""

from pathlib import Path

import pytest

from tests.systems.consensus.archives import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
