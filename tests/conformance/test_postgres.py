"""The shipped suites, on PostgreSQL as a store beside a bus."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headway.testing.conformance.candidates import CandidatesConformance
from headway.testing.conformance.commit import CommitConformance
from headway.testing.conformance.desk import DeskConformance
from headway.testing.conformance.documents import DocumentsConformance
from headway.testing.conformance.history import HistoryConformance
from headway.testing.conformance.leases import LeasesConformance
from headway.testing.conformance.letters import LettersConformance
from headway.testing.conformance.locked import LockedConformance
from headway.testing.conformance.places import PlacesConformance
from headway.testing.conformance.records import RecordsConformance
from headway.testing.conformance.totals import TotalsConformance
from headway.testing.servers import PostgreSQL
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


class TestStore(
    CommitConformance,
    DocumentsConformance,
    LettersConformance,
    PlacesConformance,
    RecordsConformance,
):
    pass


class TestSweeping(
    CandidatesConformance,
    DeskConformance,
    HistoryConformance,
    LeasesConformance,
    LockedConformance,
    TotalsConformance,
):
    pass
