"""A database that the tests of a module share, emptied before each."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headway.testing.servers import PostgreSQL
from tests.engines.pairs.postgres_harness import PostgresHarness, emptied, made_ready


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
