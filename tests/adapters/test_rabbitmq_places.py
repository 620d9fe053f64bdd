from collections.abc import AsyncIterator

import pytest

from headway.testing.conformance.places import PlacesConformance
from tests.adapters.rabbitmq_engine import RabbitEngineHarness


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitEngineHarness]:
    harness = RabbitEngineHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


class TestPlaces(PlacesConformance): ...
