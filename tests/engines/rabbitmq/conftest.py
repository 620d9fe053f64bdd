"""Engines on a virtual host of their own."""

from collections.abc import AsyncIterator

import pytest

from tests.engines.rabbitmq.engine import QuickRabbitHarness, RabbitEngineHarness


@pytest.fixture
async def harness(rabbitmq_vhost: str, coarse_delays: None) -> AsyncIterator[RabbitEngineHarness]:
    harness = RabbitEngineHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


@pytest.fixture
async def quick(rabbitmq_vhost: str, coarse_delays: None) -> AsyncIterator[QuickRabbitHarness]:
    harness = QuickRabbitHarness(rabbitmq_vhost)
    yield harness
    await harness.close()
