"""Sequences on Redis: every decision is one call of a script, and so is a batch of them.

Each key has two: `<prefix>:backlog:{ID}`, a sorted set of what it holds, and
`<prefix>:backlog_task:{ID}`, its marker and who is at it. The braces keep both on one node of a
cluster. The keys that hold something are in `<prefix>:backlog_due`, by when they are due. What
operators changed is in `<prefix>:history`.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Unpack

from headway.adapters.redis.history import RedisHistory
from headway.adapters.redis.link import Link
from headway.adapters.redis.losses import say_what_can_be_lost
from headway.adapters.redis.opening import WEEK, Keeping, one_server
from headway.adapters.redis.script import NOW, Calls, Script
from headway.adapters.redis.sequence_texts import (
    completed,
    fills,
    instant,
    look_text,
    looked,
    micros,
    offer_text,
    offered,
    payload_of,
    script_for,
    state_of,
)
from headway.adapters.redis.unreadable import (
    is_unreadable,
    keys_of,
    reading,
    refuse_unreadable,
)
from headway.core.errors import ConfigurationError
from headway.core.sequence_answers import (
    Completed,
    Completion,
    Look,
    Looked,
    Offer,
    Offered,
    Turn,
)
from headway.core.sequence_settings import DEFAULT_NAME, SequenceSettings
from headway.ports.history import History
from headway.ports.sequences import HeldResult, Reading

Asked = tuple[str, str, bytes]
"""A key, what is asked about it, and what is in the result."""

AT_ONCE = 200
"""Decisions in one call: the server does nothing else meanwhile."""
_MICROSECOND = timedelta(microseconds=1)
_TAKE_DUE = (
    NOW
    + """
local keys = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now), 'LIMIT', 0, ARGV[2])
for _, key in ipairs(keys) do
  redis.call('ZADD', KEYS[1], int(now + ARGV[3]), key)
end
return keys
"""
)


class RedisSequences:
    """The sequences under one prefix, over one client, which belongs to one event loop.

    Decisions go by `calls`, which closes the client too; what operators read goes by the client.
    """

    def __init__(
        self,
        client: Any,
        calls: Calls,
        settings: SequenceSettings,
        **keeping: Unpack[Keeping],
    ) -> None:
        prefix = keeping.get("prefix", DEFAULT_NAME)
        if not prefix or "{" in prefix:
            raise ConfigurationError(
                f"prefix={prefix!r} is not accepted: use a name without braces"
            )
        self.settings = settings
        self.client = client
        self.index = f"{prefix}:backlog_due"
        self.family = prefix
        self.history: History = RedisHistory(client, f"{prefix}:history")
        self._clock = keeping.get("clock")
        self._backlog, self._task = f"{prefix}:backlog:", f"{prefix}:backlog_task:"
        self._fill = fills(settings)
        self._calls = calls
        forget_after = keeping.get("forget_after", WEEK)
        self._decide = Script(calls, script_for(settings, forget_after))
        self._take_due = Script(calls, _TAKE_DUE)

    async def offer(self, offers: Sequence[Offer]) -> Sequence[Offered]:
        asked = [(offer.key, offer_text(offer), offer.payload) for offer in offers]
        answers = await self.ask("offer", asked)
        pairs = zip(offers, answers, strict=True)
        return [offered(offer, answer, fill=self._fill) for offer, answer in pairs]

    async def complete(self, done: Sequence[Completion]) -> Sequence[Completed]:
        asked = [(each.key, f"{each.position}|{each.token}", b"") for each in done]
        answers = await self.ask("complete", asked)
        pairs = zip(done, answers, strict=True)
        return [completed(each.key, each.token, answer, fill=self._fill) for each, answer in pairs]

    async def look(self, looks: Sequence[Look]) -> Sequence[Looked]:
        asked = [(look.key, look_text(look), b"") for look in looks]
        answers = await self.ask("look", asked)
        pairs = zip(looks, answers, strict=True)
        return [looked(look.key, look.token, answer, fill=self._fill) for look, answer in pairs]

    async def due(self, limit: int) -> Sequence[str]:
        return await self.take_due(self.index, limit)

    async def give_back(self, offer: Offer, delay: timedelta | None = None) -> timedelta | None:
        pause = "" if delay is None else delay // _MICROSECOND
        text = f"{offer.position}|{offer.token}|{offer.step}|{offer.begins}|{pause}"
        (wait,) = await self.ask("give_back", [(offer.key, text, offer.payload)])
        if is_unreadable(offer.key, wait):
            return None
        return timedelta(microseconds=int(wait)) if wait else None

    async def renew(self, work: Turn) -> bool:
        (ours,) = await self.ask("renew", [(work.key, f"{work.position}|{work.token}", b"")])
        return not is_unreadable(work.key, ours) and bool(ours)

    async def read(self, key: str) -> Reading:
        backlog, task = self.names(key)
        with reading(key):
            async with self.client.pipeline(transaction=True) as pipeline:
                pipeline.get(task)
                pipeline.zrange(backlog, 0, -1, withscores=True)
                text, members = await pipeline.execute()
            state = state_of(text, members)
        now = self._clock.now() if self._clock is not None else await self._server_time()
        return Reading(key, state, now)

    async def held(self, key: str, limit: int) -> Sequence[HeldResult]:
        with reading(key):
            members = await self.client.zrange(self.names(key)[0], 0, limit - 1, withscores=True)
            return [HeldResult(int(score), payload_of(member)) for member, score in members]

    async def waiting(self, limit: int) -> tuple[int, Sequence[str]]:
        count = await self.client.zcard(self.index)
        keys = await self.client.zrange(self.index, 0, limit - 1)
        return count, list(keys_of(keys))

    async def families(self) -> Sequence[str] | None:
        return None  # only a walk through all that the server has would find them

    async def drain(self, key: str) -> bool:
        (holds,) = await self.ask("drain", [(key, "", b"")])
        refuse_unreadable(key, holds)
        return bool(holds)

    async def forget(self, key: str) -> int:
        (dropped,) = await self.ask("forget", [(key, "", b"")])
        return int(dropped)

    async def close(self) -> None:
        await self._calls.aclose()

    async def ask(self, what: str, asked: Sequence[Asked]) -> Sequence[Any]:
        """Have decisions made, in this order, by as few calls as possible."""
        if len(asked) <= AT_ONCE:
            return await self.decide(what, asked, self.index)
        answers: list[Any] = []
        for start in range(0, len(asked), AT_ONCE):
            answers += await self.decide(what, asked[start : start + AT_ONCE], self.index)
        return answers

    async def decide(self, what: str, asked: Iterable[Asked], index: str) -> Sequence[Any]:
        """Have decisions made by one call; the index lives where the keys do."""
        keys: list[str] = [index]
        values: list[Any] = [self.now(), what]
        task, backlog = self._task, self._backlog
        for key, text, payload in asked:
            keys += (f"{task}{{{key}}}", f"{backlog}{{{key}}}")
            values += (text, payload)
        answers: Sequence[Any] = await self._decide(keys, values)
        return answers

    async def take_due(self, index: str, limit: int) -> Sequence[str]:
        """Take keys that are due out of one index, for one lease."""
        values = (self.now(), limit, self.settings.lease // _MICROSECOND)
        return list(keys_of(await self._take_due([index], values)))

    def names(self, key: str) -> tuple[str, str]:
        """Name what Redis keeps of a key: what it holds, and its state."""
        return f"{self._backlog}{{{key}}}", f"{self._task}{{{key}}}"

    def now(self) -> int | str:
        """Give the time of our own clock; empty: the server's is used."""
        return "" if self._clock is None else micros(self._clock.now())

    async def _server_time(self) -> Any:
        seconds, microseconds = await self.client.time()
        return instant(seconds * 1_000_000 + microseconds)


def redis_sequences(
    url: str, settings: SequenceSettings | None = None, **keeping: Unpack[Keeping]
) -> RedisSequences:
    """Give the sequences of one worker process on one server; it connects when it is needed."""
    client = one_server(url)
    link = Link(client, lambda: say_what_can_be_lost(client))
    return RedisSequences(client, link, settings or SequenceSettings(), **keeping)
