"""How a server is reached: what both kinds of sequences have in common."""

from datetime import timedelta
from typing import Any, TypedDict

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError  # noqa: A004 (its own)

from headway.ports.clock import Clock

WEEK = timedelta(days=7)
LOST = (ConnectionError, TimeoutError, BusyLoadingError)
_PATIENCE: Any = {"socket_timeout": 5, "socket_connect_timeout": 5}
"""Seconds; a URL may say otherwise. Older versions of redis-py wait for ever."""


class Keeping(TypedDict, total=False):
    """How sequences are kept."""

    prefix: str
    """Of all keys in Redis; `uptime` if not given."""
    clock: Clock | None
    """Without one the server's own is used, so that clocks of workers are never compared."""
    forget_after: timedelta
    """So long a key that gets no results is remembered; a week if not given."""


def one_server(url: str) -> Redis:
    return Redis.from_url(url, retry=retries(), **_PATIENCE)


def cluster(url: str) -> RedisCluster:
    """Reach a cluster by any of its nodes."""
    return RedisCluster.from_url(url, **_PATIENCE)


def retries() -> Retry:
    """Say how often a call is repeated when its connection is lost: it is recognised then."""
    return Retry(ExponentialBackoff(cap=1, base=0.05), 5, supported_errors=LOST)
