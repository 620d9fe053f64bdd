"""What a server may lose because of how it is set up: said once, when a worker first meets it."""

import logging
from typing import Any, NamedTuple

from redis.exceptions import RedisClusterException, RedisError, ResponseError

from headway.core.showing import described

_LOG = logging.getLogger("headway")


class Concern(NamedTuple):
    """Something that the server should be told otherwise."""

    level: int
    """Of logging."""
    text: str
    """What is set, what can be lost, and the cure."""


async def say_what_can_be_lost(client: Any, **where: Any) -> None:
    """Write a line for each concern. A server that tells nothing of itself is used as it is."""
    try:
        found = await concerns(client, **where)
    except (RedisError, RedisClusterException) as error:
        _LOG.info(
            "Redis does not tell how it is set up (%s): what it can lose is unknown",
            described(error),
        )
        return
    for concern in found:
        _LOG.log(concern.level, concern.text)


async def concerns(client: Any, **where: Any) -> list[Concern]:
    """Find out by what settings a server could lose results that it holds.

    Args:
        client: Of redis-py.
        where: On a cluster, which node is asked.
    """
    told = await client.info(**where)
    found = []
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        found.append(
            Concern(
                logging.ERROR,
                f"Redis removes keys when its memory is full (maxmemory-policy is {policy}): held "
                "results would be gone without a word, and keys would begin anew. "
                "Cure: CONFIG SET maxmemory-policy noeviction, and the same in its configuration",
            )
        )
    if not told.get("aof_enabled"):
        found.append(
            Concern(
                logging.WARNING,
                "Redis writes no log of changes (appendonly is no): when it ends, all results that "
                "were held since its last snapshot are lost, and their source has forgotten them. "
                "Cure: CONFIG SET appendonly yes, CONFIG SET appendfsync always, and the same in "
                "its configuration",
            )
        )
        return found
    try:
        synced = (await client.config_get("appendfsync", **where)).get("appendfsync")
    except ResponseError:  # who rents a server out often refuses this
        return found
    if synced != "always":
        found.append(
            Concern(
                logging.WARNING,
                f"Redis answers before its disk has what it was told (appendfsync is {synced}): "
                "when its machine dies, results that were held in the last seconds are lost, and "
                "their source has forgotten them. "
                "Cure: CONFIG SET appendfsync always, and the same in its configuration",
            )
        )
    return found
