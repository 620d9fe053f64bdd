from collections.abc import AsyncIterator

import pytest

from headway.testing.conformance.bus import BusConformance
from tests.adapters.rabbitmq_harness import RabbitBusHarness

pytestmark = pytest.mark.usefixtures("coarse_delays")


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitBusHarness]:
    harness = RabbitBusHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


class TestBus(BusConformance): ...
