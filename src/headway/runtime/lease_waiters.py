"""Events that wait for a document which another operation has leased.

They stay in this worker's hands, take up no handler slot, and start when the lease is released or
ends, or when its worker is gone. A release in this process is noticed at once. One in another
process is found by reading all waited documents, 20 times a second while something waits.
"""

import asyncio
from bisect import insort
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from headway.core.beginning import held_by
from headway.core.document import LEASE_UNTIL, moment
from headway.core.facts import EventsWaiting, Fact
from headway.core.writes import Document
from headway.ports.bus import HandedBack
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.runtime.attempt import Attempt
from headway.runtime.lease_keeping import LeaseKeeper, holder
from headway.runtime.persistence import Persistent

Key = tuple[str, str]
"""A collection and the id of a document in it."""
Readmit = Callable[[Sequence[Attempt], frozenset[str]], Awaitable[None]]
"""Admits events again; some tokens of leases do not hold them up any more."""

_EVERY = timedelta(milliseconds=50)
_EACH = timedelta(milliseconds=1)
"""The pause between two readings grows by this for each document, up to the longest one."""
_LONGEST = timedelta(milliseconds=500)
_HOLDERS_EVERY = timedelta(milliseconds=250)
_MOST = 2000
_MOST_FOR_ONE = 1000
"""Events in hand that wait for one document. The bus keeps the others meanwhile."""
_BACK_AFTER = timedelta(seconds=1)
_BACK_EVERY = timedelta(milliseconds=4)
"""Events go back to the bus and come again at this pace at most: each costs it several writes."""
_BACK_TOGETHER = timedelta(milliseconds=250)
"""Those that go back within this time come again at once: one take, one look-up, one commit."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_IN_HAND = timedelta(minutes=10)
"""RabbitMQ takes back everything from a worker that does not settle an event within 30 minutes."""
_SAID_EVERY = timedelta(minutes=1)


@dataclass(slots=True)
class _Waiter:
    number: int
    """In the order of arrival."""
    since: datetime
    attempt: Attempt


class _Document:
    """One document that is waited for."""

    __slots__ = ("at_once", "token", "waiters")

    def __init__(self) -> None:
        self.waiters: list[_Waiter] = []
        """The oldest first."""
        self.token = ""
        """Of the lease that was last read."""
        self.at_once = 1
        """How many try it when it is found free: more each time that it stays free."""


class LeaseWaiters:
    """Keeps events until the documents that they wait for are free."""

    def __init__(
        self,
        engine: Engine,
        leases: LeaseKeeper,
        clock: Clock,
        persistent: Persistent,
        tell: Callable[[Fact], None],
    ) -> None:
        self._engine = engine
        self._leases = leases
        self._clock = clock
        self._persistent = persistent
        self._tell = tell
        self._documents: dict[Key, _Document] = {}
        self._size = 0
        self._numbers = count()
        self._again: dict[Any, int] = {}
        """Numbers of events that are being admitted again, by their receipts: they keep them."""
        self._gone: Collection[str] = ()
        self._holders_changed = asyncio.Event()
        self._next_back = clock.now()
        self._said: dict[tuple[Key, bool], datetime] = {}
        """When it was last said that events wait for a document, or that its holder is gone."""

    def is_waited_for(self, collection: str, ids: Sequence[str]) -> str:
        """Name a document of these for which others wait already; empty: there is none."""
        return next((one for one in ids if (collection, one) in self._documents), "")

    def add(self, attempt: Attempt) -> bool:
        """Keep an event; False: too many wait already, and the bus has to keep it."""
        key = _key(attempt)
        document = self._documents.get(key) or _Document()
        if self._size >= _MOST or len(document.waiters) >= _MOST_FOR_ONE:
            return False
        number = self._again.pop(attempt.delivery.receipt, None)
        waiter = _Waiter(
            next(self._numbers) if number is None else number, self._clock.now(), attempt
        )
        insort(document.waiters, waiter, key=lambda each: each.number)
        self._documents[key] = document
        self._size += 1
        self._leases.is_waited_for = True
        if len(document.waiters) == 1:
            self._leases.released.set()
        return True

    def next_back(self) -> datetime:
        """Say when an event that goes back to the bus is to come again."""
        self._next_back = max(self._next_back + _BACK_EVERY, self._clock.now() + _BACK_AFTER)
        return self._next_back + (_EPOCH - self._next_back) % _BACK_TOGETHER

    def withdraw(self) -> Iterator[Attempt]:
        """Take back all that waits: the worker stops."""
        for key in tuple(self._documents):
            yield from self._take(key, _MOST)

    async def run(self, readmit: Readmit, back: Callable[[Attempt], None]) -> None:
        """Have events admitted again until cancelled; `back` returns one to the bus."""
        watching = asyncio.create_task(self._watch(back))
        try:
            while True:
                self._leases.released.clear()
                freed = bool(self._documents) and await self._admit_freed(readmit)
                if not freed:
                    await self._until_released(watching)
                if watching.done():
                    watching.result()  # it never ends by itself: raise what ended it
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _until_released(self, watching: asyncio.Task[None]) -> None:
        """Wait until something is released in this process, or it is time to read again."""
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._leases.released.wait())]
        if self._documents:
            pause = min(max(_EVERY, _EACH * len(self._documents)), _LONGEST)
            waits.append(asyncio.ensure_future(self._clock.wait(pause)))
        try:
            await asyncio.wait({*waits, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _admit_freed(self, readmit: Readmit) -> bool:
        """Try what has become free; False: nothing has."""
        found = await self._read()
        now = self._clock.now()
        tokens: set[str] = set()
        attempts: list[Attempt] = []
        for key, document in tuple(self._documents.items()):
            token = self._held(document, found.get(key), now)
            if token is not None and holder(token)[0] in self._gone:
                tokens.add(token)
                self._say(key, document, found[key], now, is_gone=True)
            elif token is not None:
                document.at_once = 1
                self._say(key, document, found[key], now)
                continue
            attempts += self._take(key, document.at_once)
            document.at_once *= 2
        attempts = await self._owned(attempts)
        if not attempts:
            return False
        before = self._size
        try:
            await readmit(attempts, frozenset(tokens))
        finally:
            self._again.clear()
        return self._size < before + len(attempts)  # else all of them wait again

    async def _read(self) -> dict[Key, Document]:
        ids: dict[str, list[str]] = {}
        for collection, one in self._documents:
            ids.setdefault(collection, []).append(one)
        found: dict[Key, Document] = {}
        for collection, its in ids.items():
            fetch = partial(self._engine.documents.fetch, collection, its)
            read: Mapping[str, Document] = await self._persistent.until_available(
                "Reading leased documents", fetch
            )
            found.update({(collection, one): each for one, each in read.items()})
        return found

    def _held(self, document: _Document, found: Document | None, now: datetime) -> str | None:
        """Give the token of the lease that still holds up the events of a document."""
        lifecycle = document.waiters[0].attempt.subscription.lifecycle
        token = None if found is None or lifecycle is None else held_by(found, lifecycle, now)
        if token is not None and token != document.token:
            document.token = token
            self._holders_changed.set()
        return token

    def _take(self, key: Key, number: int) -> list[Attempt]:
        document = self._documents[key]
        taken, document.waiters = document.waiters[:number], document.waiters[number:]
        self._size -= len(taken)
        self._drop_unless_waited_for(key)
        self._again.update({each.attempt.delivery.receipt: each.number for each in taken})
        return [each.attempt for each in taken]

    async def _owned(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Drop those whose delivery was lost with its connection: it comes to a worker again."""
        lost = [each for each in attempts if not self._engine.bus.owns(each.delivery)]
        if not lost:
            return list(attempts)
        await self._engine.bus.settle([(each.delivery, HandedBack()) for each in lost])
        return [each for each in attempts if each not in lost]

    async def _watch(self, back: Callable[[Attempt], None]) -> None:
        """Find out which holders are gone, and return to the bus what has waited for long."""
        while True:
            await self._holders_changed.wait()
            self._holders_changed.clear()
            while self._documents:
                await self._look_at_holders(back)
                await self._clock.wait(_HOLDERS_EVERY)

    async def _look_at_holders(self, back: Callable[[Attempt], None]) -> None:
        holders = {holder(each.token)[0] for each in self._documents.values() if each.token}
        self._gone = await self._persistent.until_available(
            "Checking which workers are gone", partial(self._engine.bus.gone, holders)
        )
        if self._gone:
            self._leases.released.set()
        now = self._clock.now()
        lost: list[Attempt] = []
        for key, document in tuple(self._documents.items()):
            every, document.waiters = document.waiters, []
            for each in every:
                if not self._engine.bus.owns(each.attempt.delivery):
                    lost.append(each.attempt)
                elif now - each.since >= _LONGEST_IN_HAND:
                    back(each.attempt)
                else:
                    document.waiters.append(each)
            self._size -= len(every) - len(document.waiters)
            self._drop_unless_waited_for(key)
        await self._owned(lost)

    def _drop_unless_waited_for(self, key: Key) -> None:
        if not self._documents[key].waiters:
            del self._documents[key]
            if not self._documents:
                self._leases.is_waited_for = False
                self._gone = ()  # it is not watched any more: they may come back

    def _say(
        self,
        key: Key,
        document: _Document,
        found: Document,
        now: datetime,
        *,
        is_gone: bool = False,
    ) -> None:
        said = self._said.get((key, is_gone))
        if said is not None and now - said < _SAID_EVERY:
            return
        self._said = {each: at for each, at in self._said.items() if now - at < _SAID_EVERY}
        self._said[key, is_gone] = now
        subscription = document.waiters[0].attempt.subscription
        self._tell(
            EventsWaiting(
                service=subscription.service,
                event_type=subscription.event_type,
                collection=key[0],
                document=key[1],
                holder=holder(document.token)[1],
                until=moment(found.get(LEASE_UNTIL)),
                count=len(document.waiters),
                is_gone=is_gone,
            )
        )


def _key(attempt: Attempt) -> Key:
    lifecycle = attempt.subscription.lifecycle
    assert lifecycle is not None  # noqa: S101 (it waits for a document)
    return lifecycle.collection, attempt.waits_for
