"""The shipped suites, with MongoDB as the store."""

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
from headway.testing.servers import MongoDB
from tests.engines.pairs.mongodb_harness import MongoHarness

pytestmark = pytest.mark.server("mongodb")


@pytest.fixture(scope="module")
def database(mongodb_server: MongoDB) -> str:
    return mongodb_server.create_database()


class TestWithMongoDB(
    CommitConformance,
    DocumentsConformance,
    LettersConformance,
    PlacesConformance,
    RecordsConformance,
    CandidatesConformance,
    DeskConformance,
    HistoryConformance,
    LeasesConformance,
    LockedConformance,
    TotalsConformance,
):
    @pytest.fixture
    async def harness(self, database: str) -> AsyncIterator[MongoHarness]:
        harness = MongoHarness(database)
        yield harness
        await harness.close()
