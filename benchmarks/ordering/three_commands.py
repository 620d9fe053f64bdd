"""The plan that Headway's uptime system is made after: plain commands, one connection, no script.

For a result in its turn these are three round trips. What was read may be wrong when it is written:
nothing keeps two workers from doing the same, or one of them from passing a backlog by.
"""

import asyncio
from collections.abc import Sequence

import redis
from redis.asyncio import Redis

from benchmarks.ordering.results import STEP, Monitors, Result

_WEEK = 7 * 24 * 60 * 60
_BACKLOG_LIVES = 60 * 60


class ThreeCommands:
    """A consumer that keeps `last_update` of each subscription, and a backlog, in Redis."""

    def __init__(self, url: str, monitors: Monitors) -> None:
        self.client = redis.Redis.from_url(url, single_connection_client=True)
        self.monitors = monitors

    def in_turn(self, results: Sequence[Result]) -> None:
        """Read how far the key is, see that it has no backlog, apply, write how far it is now."""
        client = self.client
        for key, position, _payload in results:
            last_update = client.get(f"uptime:last_update:{key}")
            waits = client.zcard(f"uptime:backlog:{key}")
            if waits or not _is_next(last_update, position):
                raise RuntimeError(f"{position} of {key} is not in its turn: {last_update!r}")
            client.set(f"uptime:last_update:{key}", position, ex=_WEEK)

    def in_one_pipeline(self, results: Sequence[Result]) -> None:
        """The same three in one round trip, though the third depends on the first two."""
        pipeline = self.client.pipeline(transaction=False)
        for key, position, _payload in results:
            pipeline.get(f"uptime:last_update:{key}")
            pipeline.zcard(f"uptime:backlog:{key}")
            pipeline.set(f"uptime:last_update:{key}", position, ex=_WEEK)
            last_update, waits, _ = pipeline.execute()
            if waits or not _is_next(last_update, position):
                raise RuntimeError(f"{position} of {key} is not in its turn: {last_update!r}")

    def hold(self, results: Sequence[Result]) -> None:
        """Queue results that are out of turn, and see whether a task is scheduled for each."""
        pipeline = self.client.pipeline(transaction=False)
        for key, position, payload in results:
            pipeline.zadd(f"uptime:backlog:{key}", {payload: position})
            pipeline.expire(f"uptime:backlog:{key}", _BACKLOG_LIVES)
            pipeline.exists(f"uptime:backlog_task:{key}")
            added, _, _ = pipeline.execute()
            if added != 1:
                raise RuntimeError(f"{position} of {key} was held already")

    def drop_backlogs(self) -> None:
        self.client.unlink(*(f"uptime:backlog:{key}" for key in self.monitors.keys))

    def check(self) -> None:
        """Raise unless the last result of every key was processed."""
        keys = self.monitors.keys
        found = self.client.mget([f"uptime:last_update:{key}" for key in keys])
        wrong = [
            key
            for key, last in zip(keys, found, strict=True)
            if int(last or 0) != self.monitors.last(key)
        ]
        if wrong:
            raise RuntimeError(f"the last result of {len(wrong)} keys was not processed")


class ThreeCommandsAsync:
    """The same over redis-py's client for asyncio, as a consumer in an event loop would."""

    def __init__(self, url: str, monitors: Monitors) -> None:
        self.monitors = monitors
        self._loop = asyncio.Runner()
        self._client = Redis.from_url(url)

    def in_turn(self, results: Sequence[Result]) -> None:
        self._loop.run(self._in_turn(results))

    def close(self) -> None:
        self._loop.run(self._client.aclose())
        self._loop.close()

    async def _in_turn(self, results: Sequence[Result]) -> None:
        client = self._client
        for key, position, _payload in results:
            last_update = await client.get(f"uptime:last_update:{key}")
            waits = await client.zcard(f"uptime:backlog:{key}")
            if waits or not _is_next(last_update, position):
                raise RuntimeError(f"{position} of {key} is not in its turn: {last_update!r}")
            await client.set(f"uptime:last_update:{key}", position, ex=_WEEK)


def _is_next(last_update: bytes | str | None, position: int) -> bool:
    return last_update is None or int(last_update) + STEP == position
