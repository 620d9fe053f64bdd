"""A database of a real MongoDB, and a store on it."""

from collections.abc import AsyncIterator

import pytest

from headway.testing.engines import MongoStore
from tests.engines.mongodb.site import Site


@pytest.fixture
async def site(mongodb_database: str) -> AsyncIterator[Site]:
    site = Site(mongodb_database)
    yield site
    await site.close()


@pytest.fixture
def store(site: Site) -> MongoStore:
    return site.store()
