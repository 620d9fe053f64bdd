"""Transactions, tried again as the driver's rules say.

A conflict undoes all of a transaction, so it is run again. A commit whose answer was lost is asked
for again: the server knows whether it was carried out. Only if nobody answers for a long time is it
left open; then whoever asked asks again, and finds what is there.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

from bson import ObjectId
from pymongo import ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import ConnectionFailure, PyMongoError
from pymongo.read_concern import ReadConcern

from headway.adapters.mongodb.connecting import SAFE, Link
from headway.adapters.mongodb.troubles import UNKNOWN, is_conflict, unwrapped
from headway.core.backoff import Exponential
from headway.ports.clock import Clock

T = TypeVar("T")
Item = TypeVar("Item")
_SNAPSHOT = ReadConcern("snapshot")
_CONFLICTS = 15
_CONFLICTS_OF_MANY = 3
_CONFLICTS_OF_ONE = 8
"""About half a second: whoever keeps a document for longer is not one of us."""
_LOSSES = 2
_COMMITS = 6
_PAUSES = Exponential(base=timedelta(milliseconds=4), cap=timedelta(milliseconds=500))
_COMMIT_PAUSES = Exponential(base=timedelta(milliseconds=50), cap=timedelta(seconds=1))


class Transactions:
    """Runs functions inside transactions."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        # Those who were in each other's way must not come back at the same time.
        self._own = ObjectId().binary[-1] / 256 + 1 / 512

    async def run(
        self, body: Callable[[AsyncClientSession], Awaitable[T]], *, conflicts: int = _CONFLICTS
    ) -> T:
        """Give the answer of `body(session)`, committed. It may be called more than once."""
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(body)
            except PyMongoError as error:
                if tries >= _most(error, conflicts):
                    raise
            await self.pause(tries)

    async def run_free(
        self,
        items: Sequence[Item],
        body: Callable[[Sequence[Item], AsyncClientSession], Awaitable[T]],
    ) -> list[T]:
        """Give the answers of `body(some, session)` for all items, in few transactions.

        What a transaction of somebody else keeps is left out: it holds up none of the others.
        """
        if not items:
            return []
        tries = _CONFLICTS_OF_ONE if len(items) == 1 else _CONFLICTS_OF_MANY
        try:
            return [await self.run(partial(body, items), conflicts=tries)]
        except PyMongoError as error:
            if not is_conflict(error):
                raise
        if len(items) == 1:
            return []
        half = len(items) // 2
        return [
            *await self.run_free(items[:half], body),
            *await self.run_free(items[half:], body),
        ]

    async def pause(self, tries: int) -> None:
        """Wait a little, the longer the more often it was tried."""
        draw = self._own * (tries * 7 + 1) % 1.0
        await self._clock.wait(_PAUSES.delay(tries, draw))

    async def _once(self, body: Callable[[AsyncClientSession], Awaitable[T]]) -> T:
        client = await self._link.client()
        async with client.start_session() as session:
            await session.start_transaction(
                read_concern=_SNAPSHOT, write_concern=SAFE, read_preference=ReadPreference.PRIMARY
            )
            try:
                answer = await body(session)
            except BaseException as error:  # cancelled too: nothing may stay open on the server
                if session.in_transaction:
                    await session.abort_transaction()
                if isinstance(error, Exception) and unwrapped(error) is not error:
                    raise unwrapped(error) from error
                raise
            await self._commit(session)
            return answer

    async def _commit(self, session: AsyncClientSession) -> None:
        for tries in range(1, _COMMITS):
            try:
                await session.commit_transaction()
            except PyMongoError as error:
                if not error.has_error_label(UNKNOWN):
                    raise
            else:
                return
            await self._clock.wait(_COMMIT_PAUSES.delay(tries, 1.0))
        await session.commit_transaction()


def _most(error: PyMongoError, conflicts: int) -> int:
    """Say how often to try where this happens."""
    if is_conflict(error):
        return conflicts
    # A commit may have been carried out: whoever asks again looks first.
    lost = isinstance(error, ConnectionFailure) and not error.has_error_label(UNKNOWN)
    return _LOSSES if lost else 1
