"""Sequences on a cluster: each slot has an index of its own, so that a decision stays on one node.

A name in braces that falls into the slot is found by trying. Which slots are in use is kept in
`<prefix>:backlog_slots`, and written before the first decision about a key of the slot is made.
"""

import asyncio
from binascii import crc_hqx
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Any, TypeVar, Unpack

from headway.adapters.redis.losses import say_what_can_be_lost
from headway.adapters.redis.opening import Keeping, cluster
from headway.adapters.redis.script import NOW, Script
from headway.adapters.redis.sequences import AT_ONCE, Asked, RedisSequences
from headway.adapters.redis.unreadable import keys_of
from headway.core.sequence_settings import SequenceSettings

T = TypeVar("T")

_SLOTS = 16_384
_TOGETHER = 32
"""So many calls are under way at once: each has a connection, and a client has not many."""
_BEFORE = "=}"
"""Stands before a key that would leave the first pair of braces empty."""
_MICROSECOND = timedelta(microseconds=1)
_PEEK = (
    NOW
    + """
return redis.call(
  'ZRANGEBYSCORE', KEYS[1], '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, ARGV[2]
)
"""
)
_TAKE = (
    NOW
    + """
local at = redis.call('ZSCORE', KEYS[1], ARGV[3])
if not at or tonumber(at) > now then
  return 0
end
redis.call('ZADD', KEYS[1], int(now + ARGV[2]), ARGV[3])
return 1
"""
)


class ClusteredSequences(RedisSequences):
    """As on one server; only who looks for due keys has to visit every slot that is in use."""

    def __init__(self, client: Any, settings: SequenceSettings, **keeping: Unpack[Keeping]) -> None:
        super().__init__(client, client, settings, **keeping)
        self._directory = self.index.removesuffix("due") + "slots"
        self._known: set[int] = set()
        """Slots that are in the directory."""
        self._has_met = False
        self._gate = asyncio.Semaphore(_TOGETHER)
        self._peek, self._take = Script(client, _PEEK), Script(client, _TAKE)

    async def due(self, limit: int) -> Sequence[str]:
        indexes, seen = await self._indexes(), list[tuple[float, bytes, str]]()
        peeks = (self._peek([index], (self.now(), limit)) for index in indexes)
        for index, found in zip(indexes, await self._all(peeks), strict=True):
            seen += [(float(at), name, index) for name, at in _pairs(found)]
        first = sorted(seen)[:limit]
        lease = self.settings.lease // _MICROSECOND
        takes = (self._take([index], (self.now(), lease, name)) for _, name, index in first)
        ours = await self._all(takes)
        taken = (name for (_, name, _), is_ours in zip(first, ours, strict=True) if is_ours)
        return [_key_of(name) for name in keys_of(taken)]

    async def waiting(self, limit: int) -> tuple[int, Sequence[str]]:
        indexes, first = await self._indexes(), list[tuple[float, bytes]]()
        number = sum(await self._all(self.client.zcard(index) for index in indexes))
        ranges = (self.client.zrange(index, 0, limit - 1, withscores=True) for index in indexes)
        for entries in await self._all(ranges):
            first += [(score, name) for name, score in entries]
        names = keys_of(name for _, name in sorted(first)[:limit])
        return number, [_key_of(name) for name in names]

    async def ask(self, what: str, asked: Sequence[Asked]) -> Sequence[Any]:
        """Have decisions made on all nodes at once; those about one key in this order."""
        asked = [(_named(key), text, payload) for key, text, payload in asked]
        by_slot: dict[int, list[int]] = defaultdict(list)
        for number, (key, _, _) in enumerate(asked):
            by_slot[slot_of(key)].append(number)
        new = by_slot.keys() - self._known
        if not self._has_met:
            self._has_met = True
            await self._meet()
        if new:
            await self.client.sadd(self._directory, *new)
            self._known |= new
        answers: list[Any] = [None] * len(asked)
        parts = [
            (slot, numbers[start : start + AT_ONCE])
            for slot, numbers in by_slot.items()
            for start in range(0, len(numbers), AT_ONCE)
        ]

        async def decided(slot: int, numbers: list[int]) -> None:
            part = [asked[number] for number in numbers]
            for number, answer in zip(
                numbers, await self.decide(what, part, self._index_of(slot)), strict=True
            ):
                answers[number] = answer

        await self._all(decided(slot, numbers) for slot, numbers in parts)
        return answers

    def names(self, key: str) -> tuple[str, str]:
        return super().names(_named(key))

    async def _meet(self) -> None:
        await self.client.initialize()
        for node in self.client.get_primaries():
            await say_what_can_be_lost(self.client, target_nodes=node)

    async def _all(self, calls: Iterable[Awaitable[T]]) -> list[T]:
        async def gated(call: Awaitable[T]) -> T:
            async with self._gate:
                return await call

        return await asyncio.gather(*map(gated, calls))

    def _index_of(self, slot: int) -> str:
        return f"{self.index}:{{{_tags()[slot]}}}"

    async def _indexes(self) -> list[str]:
        slots = await self.client.smembers(self._directory)
        return [self._index_of(int(slot)) for slot in slots]


def slot_of(key: str) -> int:
    """Say in which slot a key lives: Redis looks at what is in the first pair of braces."""
    return crc_hqx(key.partition("}")[0].encode(), 0) % _SLOTS


def _named(key: str) -> str:
    """Give the key as it stands in braces: with nothing in them, both of its names have no slot."""
    return _BEFORE + key if not key or key.startswith(("}", _BEFORE)) else key


def _key_of(name: str) -> str:
    return name.removeprefix(_BEFORE)


def _pairs(found: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(found[::2], found[1::2], strict=True)


@cache
def _tags() -> dict[int, str]:
    """Find a name for every slot."""
    tags: dict[int, str] = {}
    for number in count():
        tags.setdefault(slot_of(str(number)), str(number))
        if len(tags) == _SLOTS:
            break
    return tags


def clustered_sequences(
    url: str, settings: SequenceSettings | None = None, **keeping: Unpack[Keeping]
) -> ClusteredSequences:
    """Give the sequences of one worker process on a cluster; the URL names any of its nodes."""
    return ClusteredSequences(cluster(url), settings or SequenceSettings(), **keeping)
