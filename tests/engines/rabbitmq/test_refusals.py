"""A broker that refuses, or takes nothing: clear words, and nobody waits for ever."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from headway import ConfigurationError
from headway.adapters.rabbitmq import desk, sending
from headway.errors import BrokerFullError, NotPublishedError
from headway.testing.conformance.examples import ORDERS, QUEUES, letters_for, message
from headway.testing.engines import RabbitParts
from headway.testing.servers import RabbitMQ
from tests.engines.rabbitmq.engine import RabbitEngineHarness


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
        parts.places.depths(),
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
    await parts.letters.read(ORDERS.failed, 9)  # what is read again has to be published anew
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


async def test_whoever_does_not_wait_for_a_full_broker_is_told(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_PATIENCE", 1.0)
    bus = harness.open_parts(patient=False).bus
    await bus.open(QUEUES)
    await asyncio.to_thread(rabbitmq_server.run_out_of_memory)
    try:
        async with asyncio.timeout(20):
            # The broker says so when it has been sent something.
            with pytest.raises(NotPublishedError, match=r"memory or disk alarm.*is not known"):
                await bus.publish([message("a")])
            with pytest.raises(BrokerFullError, match=r"memory or disk alarm.*nothing was publ"):
                await bus.publish([message("b")])
    finally:
        await asyncio.to_thread(rabbitmq_server.recover_memory)
    async with asyncio.timeout(20):
        await bus.publish([message("c")])
    taken = await bus.take([ORDERS.name], 10, timedelta(seconds=10))
    while len(taken) < 2:
        taken = [*taken, *await bus.take([ORDERS.name], 10, timedelta(seconds=10))]
    assert {each.travel.operation for each in taken} == {"a", "c"}


async def test_queues_that_a_full_broker_does_not_take_down_keep_nobody(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "_PATIENCE", 2.0)
    await asyncio.to_thread(rabbitmq_server.run_out_of_memory)
    try:
        told = harness.open_parts().bus
        with pytest.raises(ConnectionError, match="takes no messages, because its memory or disk"):
            async with asyncio.timeout(20):
                await told.open(QUEUES)
        monkeypatch.setattr(desk, "_PATIENCE", 600.0)
        stopped = harness.open_parts().bus
        opening = asyncio.create_task(stopped.open(QUEUES))
        await asyncio.sleep(1)
        assert not opening.done()
        opening.cancel()
        async with asyncio.timeout(5):
            await stopped.close()
    finally:
        await asyncio.to_thread(rabbitmq_server.recover_memory)
    await told.open(QUEUES)


async def lose_the_login(
    harness: RabbitEngineHarness, server: RabbitMQ, *, for_worker: bool
) -> tuple[RabbitParts, str]:
    """Give parts that were connected, and whose password was changed since; and the password."""
    harness.url = server.create_user(harness.url, configure=".*", write=".*", read=".*")
    password = harness.url.partition("://")[2].partition(":")[0]
    parts = harness.open_parts(for_worker=for_worker)
    await parts.bus.open(QUEUES)
    await parts.bus.publish([message("before")])
    await asyncio.to_thread(server.set_password, harness.url, "another")
    async with asyncio.timeout(10):
        while parts.bus._sender._channel is not None:  # management lists connections late
            await asyncio.to_thread(server.close_connections)
            await asyncio.sleep(0.2)
    return parts, password


async def test_a_worker_whose_password_was_changed_waits_until_it_is_accepted_again(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ
) -> None:
    parts, password = await lose_the_login(harness, rabbitmq_server, for_worker=True)
    publishing = asyncio.create_task(parts.bus.publish([message("after")]))
    await asyncio.sleep(3)
    assert not publishing.done()
    await asyncio.to_thread(rabbitmq_server.set_password, harness.url, password)
    async with asyncio.timeout(10):
        assert list(await publishing) == [1]


async def test_a_worker_is_never_told_that_its_settings_are_wrong_while_it_runs(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would be a permanent failure of its events, and it is none."""
    monkeypatch.setattr(sending, "_PATIENCE", 2.0)
    parts, _ = await lose_the_login(harness, rabbitmq_server, for_worker=True)
    async with asyncio.timeout(20):
        with pytest.raises(NotPublishedError, match="does not accept the login of user"):
            await parts.bus.publish([message("after")])


async def test_others_are_told_at_once_that_their_password_was_changed(
    harness: RabbitEngineHarness, rabbitmq_server: RabbitMQ
) -> None:
    parts, _ = await lose_the_login(harness, rabbitmq_server, for_worker=False)
    async with asyncio.timeout(4):
        with pytest.raises(ConfigurationError, match="does not accept the login of user"):
            await parts.bus.publish([message("after")])
