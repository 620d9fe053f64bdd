"""The shipped suites, with MongoDB as the store."""

from collections.abc import AsyncIterator

import pytest

from headway.testing.conformance.locked import LockedConformance
from headway.testing.servers import MongoDB
from tests.conformance import suites
from tests.engines.pairs.mongodb_harness import MongoHarness

pytestmark = pytest.mark.server("mongodb")


@pytest.fixture(scope="module")
def database(mongodb_server: MongoDB) -> str:
    return mongodb_server.create_database()


class TestWithMongoDB(suites.Store, suites.Sweeping, LockedConformance):
    @pytest.fixture
    async def harness(self, database: str) -> AsyncIterator[MongoHarness]:
        harness = MongoHarness(database)
        yield harness
        await harness.close()
