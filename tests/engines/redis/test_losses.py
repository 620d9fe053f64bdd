"""What a server may lose is said once, by the worker that meets it."""

import logging
from typing import Any

import pytest
import redis

from headway.testing.engines import redis_sequences
from headway.testing.ports import Offer
from headway.testing.servers import Redis

pytestmark = pytest.mark.server("redis")
SAFE = {"appendfsync": "always"}


@pytest.mark.parametrize(
    ("configured", "user", "said"),
    [
        (SAFE, "", []),
        ({"appendfsync": "everysec"}, "", [("WARNING", "appendfsync is everysec")]),
        ({"appendfsync": "no"}, "", [("WARNING", "appendfsync is no")]),
        ({"appendonly": "no"}, "", [("WARNING", "appendonly is no")]),
        (
            {**SAFE, "maxmemory-policy": "allkeys-lru"},
            "",
            [("ERROR", "maxmemory-policy is allkeys-lru")],
        ),
        (
            {"maxmemory-policy": "volatile-ttl"},
            "-config",
            [("ERROR", "maxmemory-policy is volatile-ttl")],
        ),
        (SAFE, "-info", [("INFO", "unknown")]),
    ],
)
async def test_what_can_be_lost_is_said_once(
    configured: dict[str, str],
    user: str,
    said: list[tuple[str, str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Redis() as server, redis.Redis.from_url(server.url) as client:
        by_hand: Any = client
        for name, value in configured.items():
            by_hand.config_set(name, value)
        if user:
            by_hand.execute_command("ACL", "SETUSER", "default", user)
        sequences = redis_sequences(server.url)
        with caplog.at_level(logging.INFO, "headway"):
            await sequences.due(5)
            (answer,) = await sequences.offer([Offer("7", 1, b"", "a")])
        assert answer.work is not None
        await sequences.close()
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert len(lines) == len(said)
    for (level, line), (expected, fact) in zip(lines, said, strict=True):
        assert level == expected
        assert fact in line
