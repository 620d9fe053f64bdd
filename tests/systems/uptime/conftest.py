"""A site on every engine."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.systems.uptime.sites import Site


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    url = request.getfixturevalue("redis_database") if request.param == "redis" else ""
    site = Site(request.param, tmp_path, url)
    await site.open()
    yield site
    await site.close()


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site("memory", tmp_path)
    await site.open()
    yield site
    await site.close()
