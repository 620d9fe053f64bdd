"""Documents as handlers read them, and as operations begin to work on them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from sys import float_info
from typing import Any

from pymongo import UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession

from headway.adapters.mongodb.changing import change, is_plain
from headway.adapters.mongodb.connecting import Link, logs_in_again
from headway.adapters.mongodb.ids import likely_ids, unlikely_ids
from headway.adapters.mongodb.reading import Found, read
from headway.adapters.mongodb.tallying import alike
from headway.adapters.mongodb.transactions import Transactions
from headway.adapters.mongodb.values import (
    Raw,
    every,
    kept,
    likely,
    milliseconds,
    view,
)
from headway.core.beginning import Beginning, Begun, How, begun_together
from headway.core.document import LEASE_TOKEN, LEASE_UNTIL, WAITING
from headway.core.lifecycle import Lifecycle, State, by_state
from headway.core.writes import ID, Document, matches
from headway.ports.documents import locked

_WIDEST = 1 << 63


class MongoDocuments:
    """Reads as the URL says; begins in transactions."""

    def __init__(self, link: Link, transactions: Transactions) -> None:
        self._link = link
        self._transactions = transactions

    @logs_in_again
    async def fetch(self, collection: str, ids: Sequence[str]) -> Mapping[str, Document]:
        found = await read(await self._link.shown(collection), ids) if ids else {}
        return {one: {**view(found[one]), ID: one} for one in ids if one in found}

    @logs_in_again
    async def find(
        self, collection: str, where: Mapping[str, Any], limit: int
    ) -> Sequence[Document]:
        found = Found()
        named = await self._link.shown(collection)
        cursor = named.find(_narrowed(where)).sort(ID, 1)
        async with cursor if where else cursor.limit(max(limit, 1)) as every_one:
            async for raw in every_one:
                if len(found) >= limit:
                    break
                document = view(raw)
                if matches(document, where):
                    found.put(raw, document)
        return await found.named(named)

    @logs_in_again
    async def count(self, collection: str, where: Mapping[str, Any]) -> int:
        named = await self._link.shown(collection)
        if not where:
            return await named.count_documents({})
        # MongoDB finds more than what matches, such as a Decimal128 that is shown as this text.
        fields = dict.fromkeys(where, 1) if all(map(is_plain, where)) else None
        async with named.find(_narrowed(where), fields) as every_one:
            return sum([matches(view(raw), where) async for raw in every_one])

    async def tally(self, lifecycle: Lifecycle) -> Mapping[State, int]:
        named = await self._link.shown(lifecycle.collection)
        return by_state(lifecycle, await alike(named, lifecycle))

    @logs_in_again
    async def begin(self, beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        answers: dict[int, Mapping[str, Begun]] = {}
        numbered = list(enumerate(beginnings))
        for some in await self._transactions.run_free(numbered, self._begin_some):
            answers.update(some)
        for number, beginning in numbered:
            if number not in answers:
                answers[number] = await self._locked(beginning)
        return [answers[number] for number, _ in numbered]

    async def renew(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        return await self._change(collection, tokens, {LEASE_UNTIL: milliseconds(until)})

    async def leave(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        changes = {LEASE_TOKEN: WAITING, LEASE_UNTIL: milliseconds(until)}
        return await self._change(collection, tokens, changes)

    @logs_in_again
    async def _change(self, collection: str, tokens: Mapping[str, str], changes: Raw) -> int:
        """Change documents that still bear their tokens."""
        named = await self._link.theirs(collection)

        async def renew(some: Sequence[tuple[str, str]], session: AsyncClientSession) -> int:
            updates = [
                UpdateOne(
                    {ID: {"$in": [*likely_ids(one), *unlikely_ids(one)]}, LEASE_TOKEN: token},
                    {"$set": changes},
                )
                for one, token in some
            ]
            result = await named.bulk_write(updates, ordered=False, session=session)
            return result.matched_count

        return sum(await self._transactions.run_free(list(tokens.items()), renew))

    async def _locked(self, beginning: Beginning) -> dict[str, Begun]:
        """Answer for documents of which another transaction keeps one."""
        named = await self._link.theirs(beginning.lifecycle.collection)
        found = await read(named, beginning.ids)
        return {one: locked(view(found[one]), beginning) for one in beginning.ids if one in found}

    async def _begin_some(
        self, numbered: Sequence[tuple[int, Beginning]], session: AsyncClientSession
    ) -> Mapping[int, Mapping[str, Begun]]:
        answers = await self._begin([beginning for _, beginning in numbered], session)
        return {number: answer for (number, _), answer in zip(numbered, answers, strict=True)}

    async def _begin(
        self, beginnings: Sequence[Beginning], session: AsyncClientSession
    ) -> list[dict[str, Begun]]:
        """Let all begin, one after the other, on documents that were read once."""
        raw = await self._read_for(beginnings, session)
        before = {key: view(each) for key, each in raw.items()}
        now = dict(before)
        answers: list[dict[str, Begun]] = []
        for beginning in beginnings:
            collection = beginning.lifecycle.collection
            found = {one: now[collection, one] for one in beginning.ids if (collection, one) in now}
            begun = begun_together(found, beginning)
            answer = {one: _as_stored(each) for one, each in begun.items()}
            now.update({(collection, one): each.document for one, each in answer.items()})
            answers.append(answer)
        updates: dict[str, list[UpdateOne]] = {}
        for key, document in now.items():
            update = None if document is before[key] else change(raw[key], before[key], document)
            if update is not None:
                updates.setdefault(key[0], []).append(UpdateOne({ID: raw[key][ID]}, update))
        for collection, its in updates.items():
            named = await self._link.theirs(collection)
            await named.bulk_write(its, ordered=False, session=session)
        return answers

    async def _read_for(
        self, beginnings: Sequence[Beginning], session: AsyncClientSession
    ) -> dict[tuple[str, str], Raw]:
        ids: dict[str, list[str]] = {}
        for beginning in beginnings:
            ids.setdefault(beginning.lifecycle.collection, []).extend(beginning.ids)
        return {
            (collection, one): raw
            for collection, its in ids.items()
            for one, raw in (await read(await self._link.theirs(collection), its, session)).items()
        }


def _as_stored(answer: Begun) -> Begun:
    """Give a document as everybody will read it."""
    if answer.how is not How.BEGUN:
        return answer
    return Begun(answer.how, view(kept(answer.document)))


def _narrowed(where: Mapping[str, Any]) -> dict[str, Any]:
    """Let MongoDB leave out what does not match; `matches` compares lists and objects."""
    queries: list[dict[str, Any]] = []
    for field, value in where.items():
        if field == ID:
            ids = [*likely_ids(value), *unlikely_ids(value)] if isinstance(value, str) else []
            queries.append({ID: {"$in": ids}})
        elif isinstance(value, list | dict):
            kind = "array" if isinstance(value, list) else "object"
            queries.append(_of_kind(field, kind))
        elif isinstance(value, str | int | float | None):
            queries.append(_one_of(field, _shown_as(value)))
    return {"$and": queries} if queries else {}


def _shown_as(value: Any) -> Sequence[Any]:
    """Give what is stored where a value is shown."""
    if isinstance(value, str):
        return every(value)
    if isinstance(value, int) and abs(value) >= _WIDEST:  # BSON has no whole numbers so large
        return (float(value),) if abs(value) <= float_info.max else ()
    return likely(value)


def _one_of(field: str, values: Sequence[Any]) -> dict[str, Any]:
    if is_plain(field):  # not what is in a list
        return {field: {"$in": list(values), "$not": {"$type": "array"}}}
    held = {"$ifNull": [_held(field), None]}
    return {"$expr": {"$in": [held, {"$literal": list(values)}]}}


def _of_kind(field: str, kind: str) -> dict[str, Any]:
    if is_plain(field):
        return {field: {"$type": kind}}
    return {"$expr": {"$eq": [{"$type": _held(field)}, kind]}}


def _held(field: str) -> dict[str, Any]:
    """Name a field whose name means something else to MongoDB."""
    return {"$getField": {"field": {"$literal": field}, "input": "$$ROOT"}}
