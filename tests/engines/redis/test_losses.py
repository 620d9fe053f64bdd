"""What a server may lose is said once, by the worker that meets it."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from headway.adapters.redis.losses import concerns
from headway.adapters.redis.opening import one_server
from headway.testing.engines import redis_sequences
from headway.testing.ports import Offer
from headway.testing.servers import Redis

pytestmark = pytest.mark.server("redis")


@pytest.fixture
async def client() -> AsyncIterator[Any]:
    with Redis() as server:
        client = one_server(server.url)
        yield client
        await client.aclose()


async def test_a_server_that_syncs_always_and_evicts_nothing_is_well(client: Any) -> None:
    await client.config_set("appendfsync", "always")
    assert await concerns(client) == []


@pytest.mark.parametrize("how", ["everysec", "no"])
async def test_a_disk_that_is_behind_is_a_warning(client: Any, how: str) -> None:
    await client.config_set("appendfsync", how)
    (concern,) = await concerns(client)
    assert concern.level == logging.WARNING
    assert f"appendfsync is {how}" in concern.text
    assert "results that were held in the last seconds are lost" in concern.text
    assert "Cure: CONFIG SET appendfsync always" in concern.text


async def test_no_log_of_changes_is_a_warning(client: Any) -> None:
    await client.config_set("appendonly", "no")
    (concern,) = await concerns(client)
    assert concern.level == logging.WARNING
    assert "since its last snapshot are lost" in concern.text
    assert "Cure: CONFIG SET appendonly yes" in concern.text


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_eviction_is_an_error(client: Any, policy: str) -> None:
    await client.config_set("appendfsync", "always")
    await client.config_set("maxmemory-policy", policy)
    (concern,) = await concerns(client)
    assert concern.level == logging.ERROR
    assert f"maxmemory-policy is {policy}" in concern.text
    assert "Cure: CONFIG SET maxmemory-policy noeviction" in concern.text


async def test_a_server_that_refuses_config_still_tells_of_eviction(client: Any) -> None:
    await client.config_set("maxmemory-policy", "allkeys-lru")
    await client.acl_setuser("default", commands=["-config"])
    (concern,) = await concerns(client)
    assert concern.level == logging.ERROR


async def test_it_is_said_once(redis_database: str, caplog: pytest.LogCaptureFixture) -> None:
    sequences = redis_sequences(redis_database)
    await sequences.due(5)
    await sequences.offer([Offer("7", 1, b"", "a")])
    await sequences.close()
    lines = [(record.levelname, "appendfsync is" in record.message) for record in caplog.records]
    assert lines == [("WARNING", True)]


async def test_who_may_not_ask_works_all_the_same(
    redis_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with redis.Redis.from_url(redis_database) as client:
        user = ("ACL", "SETUSER", "w8", "on", ">s3cret", "~*", "+@all", "-info", "-config")
        client.execute_command(*user)
    sequences = redis_sequences(redis_database.replace("redis://", "redis://w8:s3cret@"))
    with caplog.at_level(logging.INFO):
        (answer,) = await sequences.offer([Offer("7", 1, b"", "a")])
    assert answer.work is not None
    await sequences.close()
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert "what it can lose is unknown" in record.message
