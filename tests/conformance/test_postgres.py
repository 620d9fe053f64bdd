"""The shipped suites, on PostgreSQL as a store beside a bus."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headway.testing.conformance.locked import LockedConformance
from headway.testing.servers import PostgreSQL
from tests.conformance import suites
from tests.engines.pairs.postgres_harness import PostgresHarness, emptied, made_ready

pytestmark = pytest.mark.server("postgresql")


@pytest.fixture(scope="module")
def database(postgres_server: PostgreSQL) -> str:
    url = postgres_server.create_database()
    asyncio.run(made_ready(url))
    return url


@pytest.fixture
async def harness(database: str) -> AsyncIterator[PostgresHarness]:
    await emptied(database)
    harness = PostgresHarness(database)
    yield harness
    await harness.close()


class TestStore(suites.Store): ...


class TestSweeping(suites.Sweeping, LockedConformance): ...
