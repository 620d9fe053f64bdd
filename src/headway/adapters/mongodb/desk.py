"""Documents as an operator sees them, and who did what to them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession

from headway.adapters.mongodb.changing import setting
from headway.adapters.mongodb.connecting import RAW, Collection, Link
from headway.adapters.mongodb.exact import unchanged
from headway.adapters.mongodb.naming import OURS
from headway.adapters.mongodb.reading import Found, read
from headway.adapters.mongodb.transactions import Transactions
from headway.adapters.mongodb.values import kept_value, view
from headway.adapters.mongodb.views import flag_of
from headway.core.document import STATUS
from headway.core.lifecycle import Lifecycle, State
from headway.core.writes import ID, Document

_AT_ONCE = 500
_Act = Callable[[Collection, Mapping[str, Any], AsyncClientSession], Awaitable[frozenset[str]]]
"""Does something to documents that are as they were read, given by the texts of their ids."""


class MongoDesk:
    """Every change is a transaction: of two who decide, one does."""

    def __init__(self, link: Link, transactions: Transactions) -> None:
        self._link = link
        self._transactions = transactions

    async def browse(
        self, lifecycle: Lifecycle, states: Sequence[State], *, page: int
    ) -> AsyncIterator[Sequence[Document]]:
        found = Found()
        if not states:
            return
        named = await self._link.theirs(lifecycle.collection)
        cursor = named.find(
            _narrowed(lifecycle, states),
            sort=[(ID, 1)],
            batch_size=page,
            allow_disk_use=True,
        )
        async with cursor:
            async for raw in cursor:
                document = view(raw)
                if lifecycle.state(document) in states:
                    found.put(raw, document)
                    if len(found) == page:
                        yield await found.named(named)
                        found = Found()
        if found:
            yield await found.named(named)

    async def collections(self) -> Sequence[str]:
        whole = await self._link.whole()
        names = await whole.list_collection_names(filter={"type": "collection"})
        there = (each for each in names if each not in OURS and not each.startswith("system."))
        return [each for each in sorted(there) if await whole[each].find_one({}, {ID: 1})]

    async def change(
        self, collection: str, documents: Sequence[Document], changes: Mapping[str, Any]
    ) -> frozenset[str]:
        update = setting({field: kept_value(field, value) for field, value in changes.items()})

        async def act(
            named: Collection, those: Mapping[str, Any], session: AsyncClientSession
        ) -> frozenset[str]:
            await named.update_many({ID: {"$in": list(those.values())}}, update, session=session)
            return frozenset(those)

        return await self._act(collection, documents, act)

    async def remove(self, collection: str, documents: Sequence[Document]) -> frozenset[str]:
        async def act(
            named: Collection, those: Mapping[str, Any], session: AsyncClientSession
        ) -> frozenset[str]:
            await named.delete_many({ID: {"$in": list(those.values())}}, session=session)
            return frozenset(those)

        return await self._act(collection, documents, act)

    async def move(self, collection: str, documents: Sequence[Document], to: str) -> frozenset[str]:
        if not documents:
            return frozenset()
        await self._link.make_sure(to)
        target = await self._link.theirs(to)

        async def act(
            named: Collection, those: Mapping[str, Any], session: AsyncClientSession
        ) -> frozenset[str]:
            ids = {"$in": list(those.values())}
            taken = [raw[ID] async for raw in target.find({ID: ids}, {ID: 1}, session=session)]
            movable = {one: key for one, key in those.items() if key not in taken}
            if movable:
                ids = {"$in": list(movable.values())}
                raw = named.with_options(codec_options=RAW).find({ID: ids}, session=session)
                await target.insert_many(await raw.to_list(), session=session)
                await named.delete_many({ID: ids}, session=session)
            return frozenset(movable)

        return await self._act(collection, documents, act)

    async def _act(
        self, collection: str, documents: Sequence[Document], act: _Act
    ) -> frozenset[str]:
        done: set[str] = set()
        for start in range(0, len(documents), _AT_ONCE):
            some = documents[start : start + _AT_ONCE]
            done |= await self._transactions.run(partial(self._act_on, collection, some, act))
        return frozenset(done)

    async def _act_on(
        self, collection: str, documents: Sequence[Document], act: _Act, session: AsyncClientSession
    ) -> frozenset[str]:
        named = await self._link.theirs(collection)
        found = await read(named, [each[ID] for each in documents], session)
        same = unchanged(documents, found, [STATUS])
        return await act(named, same, session) if same else frozenset()


def _narrowed(lifecycle: Lifecycle, states: Sequence[State]) -> dict[str, Any]:
    """Let MongoDB leave out most of what is in another state."""
    flag = flag_of(lifecycle)
    if set(states) == {State.GIVEN_UP}:
        return {STATUS: lifecycle.given_up_word}
    if flag is not None:
        return {} if State.PROCESSED in states else {flag: {"$ne": True}}
    words: dict[State, tuple[str | None, ...]] = {
        State.PENDING: lifecycle.pending_words,
        State.FAILED: (lifecycle.failed_word,),
        State.GIVEN_UP: (lifecycle.given_up_word,),
    }
    if State.PROCESSED in states:
        return {}
    if State.FOREIGN in states:
        return {STATUS: {"$nin": list(lifecycle.processed_words)}}
    return {STATUS: {"$in": [word for state in states for word in words[state]]}}
