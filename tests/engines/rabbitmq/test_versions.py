"""Live versions on a broker that loses their journal, or is away for longer than their grace."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from headway.testing.conformance.examples import ORDERS, opened
from tests.engines.rabbitmq.by_hand import channel_to
from tests.engines.rabbitmq.engine import RabbitEngineHarness as Harness

VERSIONS = "headway.versions"
LONG = timedelta(minutes=10)
SHORT = timedelta(seconds=2)


@pytest.fixture
async def harness(rabbitmq_vhost: str) -> AsyncIterator[Harness]:
    harness = Harness(rabbitmq_vhost)
    yield harness
    await harness.close()


@pytest.mark.parametrize("loss", ["queue_delete", "queue_purge"])
async def test_version_stays_alive_when_the_journal_is_lost(harness: Harness, loss: str) -> None:
    first, second = await opened(harness), await opened(harness)
    await first.bus.announce("shop", "1", [ORDERS.name], LONG)
    await second.bus.announce("shop", "2", [ORDERS.name], LONG)
    assert set(await first.bus.live_versions(ORDERS.name)) == {"1", "2"}
    with channel_to(harness.url) as channel:
        getattr(channel, loss)(VERSIONS)
    assert set(await first.bus.live_versions(ORDERS.name)) == {"1", "2"}


async def test_journal_that_was_lost_names_every_live_version_again(harness: Harness) -> None:
    first, second = await opened(harness), await opened(harness)
    await first.bus.announce("shop", "1", [ORDERS.name], SHORT)
    await second.bus.announce("shop", "2", [ORDERS.name], SHORT)
    with channel_to(harness.url) as channel:
        channel.queue_delete(VERSIONS)
    newcomer = await opened(harness)
    async with asyncio.timeout(60):
        while set(await newcomer.bus.live_versions(ORDERS.name)) != {"1", "2"}:
            await harness.pass_time(harness.moment)


async def test_outage_longer_than_the_grace_ends_no_version(harness: Harness) -> None:
    first, second = await opened(harness), await opened(harness)
    await first.bus.announce("shop", "1", [ORDERS.name], SHORT)
    await second.bus.announce("shop", "2", [ORDERS.name], SHORT)
    assert set(await first.bus.live_versions(ORDERS.name)) == {"1", "2"}
    with channel_to(harness.url) as channel:  # as the broker does that was down for so long
        channel.queue_delete("headway.version.shop/2")
    assert set(await first.bus.live_versions(ORDERS.name)) == {"1", "2"}
