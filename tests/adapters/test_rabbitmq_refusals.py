"""A broker that refuses, or takes nothing: clear words, and nobody waits for ever."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from headway.adapters.rabbitmq import scanning
from headway.core.errors import ConfigurationError
from headway.testing.conformance.examples import ORDERS, QUEUES, letters_for
from headway.testing.servers import RabbitMQ
from tests.adapters.rabbitmq_engine import RabbitEngineHarness


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[RabbitEngineHarness]:
    harness = RabbitEngineHarness(rabbitmq_vhost)
    yield harness
    await harness.close()


async def test_a_user_with_too_few_rights_is_told_which(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ
) -> None:
    await harness.open_parts().bus.open(QUEUES)
    owner = harness.url
    harness.url = rabbitmq_server.create_user(owner, configure="", write=".*", read=".*")
    parts = harness.open_parts()
    vhost = owner.rpartition("/")[2]
    for asked in (
        parts.bus.open(QUEUES),
        parts.letters.queues(),
        parts.letters.read(ORDERS.failed, 1),
        parts.places.count(),
    ):
        with pytest.raises(ConfigurationError) as refused:
            await asked
        said = str(refused.value)
        assert "it needs the rights to configure, write and read" in said
        assert f"rabbitmqctl set_permissions -p {vhost} user_" in said


async def test_a_wrong_password_is_looked_for_under_both_names(
    harness: RabbitEngineHarness,
) -> None:
    harness.url = harness.url.replace("guest:guest", "guest:wrong")
    with pytest.raises(ConfigurationError, match="in HEADWAY_BUS, or RABBITMQ_USERNAME and RABB"):
        await harness.open_parts().letters.queues()


async def test_letters_can_be_looked_at_while_the_broker_takes_nothing(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = harness.open_parts()
    await parts.bus.open(QUEUES)
    letters = letters_for(["a", "b"], harness.clock.now())
    await parts.letters.write(ORDERS.failed, letters)
    monkeypatch.setattr(scanning, "_WORN", 0)  # whatever is read has to be published anew
    await asyncio.to_thread(rabbitmq_server.run_out_of_memory)
    try:
        other = harness.open_parts()
        began = time.monotonic()
        found = {each.name: each.letters for each in await other.letters.queues()}
        assert found[ORDERS.failed] == 2
        assert [each.operation for each in await other.letters.read(ORDERS.failed, 9)] == ["a", "b"]
        await other.bus.close()
        assert time.monotonic() - began < 15
    finally:
        await asyncio.to_thread(rabbitmq_server.recover_memory)
    assert [each.operation for each in await parts.letters.read(ORDERS.failed, 9)] == ["a", "b"]
