"""How a server is reached: what both kinds of sequences have in common."""

from collections.abc import Callable
from datetime import timedelta
from math import inf
from typing import Any, TypedDict, TypeVar
from urllib.parse import parse_qsl, urlencode

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import BusyLoadingError, ConnectionError, TimeoutError  # noqa: A004 (its own)

from headway.core.errors import ConfigurationError
from headway.core.secrets import shown_url
from headway.core.showing import shown
from headway.ports.clock import Clock

C = TypeVar("C")
WEEK = timedelta(days=7)
LOST = (ConnectionError, TimeoutError, BusyLoadingError)
_ANSWERS = ("decode_responses", "encoding", "encoding_errors", "parser_class", "retry")
"""Options that would have answers read in another way."""
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
    return _opened(url, _server)


def cluster(url: str) -> RedisCluster:
    """Reach a cluster by any of its nodes."""
    return _opened(url, lambda known: RedisCluster.from_url(known, **_PATIENCE))


def _server(url: str) -> Redis:
    client = Redis.from_url(url, retry=retries(), **_PATIENCE)
    pool = client.connection_pool
    pool.connection_class(**pool.connection_kwargs)  # only this knows all the options
    return client


def _opened(url: str, opened: Callable[[str], C]) -> C:
    """Open it; what cannot be used is named, before anything is asked of the server."""
    address, _, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    for name, value in options:
        if name in _ANSWERS:
            raise _refused(url, name, value, "leave it out, since answers are read as bytes")
        if name in _PATIENCE and _is_no_time(value):
            raise _refused(url, name, value, "use a number of seconds above 0")
    try:
        return opened(url)
    except (TypeError, ValueError):
        for name, value in options if _can_open(address, opened) else ():
            try:
                opened(f"{address}?{urlencode({name: value})}")
            except (TypeError, ValueError) as reason:
                cure = f"use options of redis-py that fit this scheme ({reason})"
                raise _refused(url, name, value, cure) from None  # it may quote the password
        raise ConfigurationError(
            f"{shown_url(url)!r} is not accepted: use redis://user:password@host:port/database, "
            "and %2F for a / in the password, and so on"
        ) from None


def _can_open(address: str, opened: Callable[[str], C]) -> bool:
    try:
        opened(address)
    except (TypeError, ValueError):
        return False
    return True


def _is_no_time(value: str) -> bool:
    try:
        return not 0 < float(value) < inf
    except ValueError:
        return False  # redis-py says so itself


def _refused(url: str, name: str, value: str, cure: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name}={shown(value)!r} in {shown_url(url)!r} is not accepted: {cure}"
    )


def retries() -> Retry:
    """Say how often a call is repeated when its connection is lost: it is recognised then.

    Not when a server gave no answer in time: it hangs, and each try would take as long again. How
    long that is waited for is the caller's to say.
    """
    lost = (ConnectionError, BusyLoadingError)
    return Retry(ExponentialBackoff(cap=1, base=0.05), 5, supported_errors=lost)
