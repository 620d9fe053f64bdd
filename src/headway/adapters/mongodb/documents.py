"""Documents as handlers read them, and as operations begin to work on them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo import UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession

from headway.adapters.mongodb.changing import change, is_plain
from headway.adapters.mongodb.connecting import Link
from headway.adapters.mongodb.reading import read
from headway.adapters.mongodb.transactions import Transactions
from headway.adapters.mongodb.values import (
    Raw,
    every,
    kept,
    likely,
    likely_ids,
    milliseconds,
    unlikely_ids,
    view,
)
from headway.core.beginning import Beginning, Begun, How, begun
from headway.core.document import LEASE_TOKEN, LEASE_UNTIL
from headway.core.writes import ID, Document, matches

_WIDEST = 1 << 63


class MongoDocuments:
    """Reads as the URL says; begins in transactions."""

    def __init__(self, link: Link, transactions: Transactions) -> None:
        self._link = link
        self._transactions = transactions

    async def fetch(self, collection: str, ids: Sequence[str]) -> Mapping[str, Document]:
        found = await read(await self._link.shown(collection), ids) if ids else {}
        return {one: view(found[one]) for one in ids if one in found}

    async def find(
        self, collection: str, where: Mapping[str, Any], limit: int
    ) -> Sequence[Document]:
        found: list[Document] = []
        if limit <= 0:
            return found
        cursor = (await self._link.shown(collection)).find(_narrowed(where)).sort(ID, 1)
        async with cursor if where else cursor.limit(limit) as every_one:
            async for raw in every_one:
                document = view(raw)
                if matches(document, where):
                    found.append(document)
                    if len(found) == limit:
                        break
        return found

    async def begin(self, beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        if not beginnings:
            return []
        return await self._transactions.run(lambda session: self._begin(beginnings, session))

    async def renew(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        if not tokens:
            return 0
        renewed = {"$set": {LEASE_UNTIL: milliseconds(until)}}
        result = await (await self._link.theirs(collection)).bulk_write(
            [
                UpdateOne(
                    {ID: {"$in": [*likely_ids(one), *unlikely_ids(one)]}, LEASE_TOKEN: token},
                    renewed,
                )
                for one, token in tokens.items()
            ],
            ordered=False,
        )
        return result.matched_count

    async def _begin(
        self, beginnings: Sequence[Beginning], session: AsyncClientSession
    ) -> list[dict[str, Begun]]:
        """Let all begin, one after the other, on documents that were read once."""
        raw = await self._read_for(beginnings, session)
        before = {key: view(each) for key, each in raw.items()}
        now = dict(before)
        answers: list[dict[str, Begun]] = []
        for beginning in beginnings:
            collection, answer = beginning.lifecycle.collection, dict[str, Begun]()
            for one in beginning.ids:
                if (collection, one) in now:
                    answer[one] = _as_stored(begun(now[collection, one], beginning))
                    now[collection, one] = answer[one].document
            answers.append(answer)
        updates: dict[str, list[UpdateOne]] = {}
        for key, document in now.items():
            update = None if document is before[key] else change(before[key], document)
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
    """Let MongoDB leave out most of what cannot match; `matches` has the last word."""
    query: dict[str, Any] = {}
    for field, value in where.items():
        if not is_plain(field):
            continue
        if field == ID:
            if isinstance(value, str):
                query[field] = {"$in": [*likely_ids(value), *unlikely_ids(value)]}
        elif value is None:
            query[field] = {"$in": list(likely(None))}
        elif isinstance(value, str):
            query[field] = {"$in": every(value)}
        elif isinstance(value, list):
            query[field] = {"$type": "array"}
        elif isinstance(value, dict):
            query[field] = {"$type": "object"}
        elif isinstance(value, float) or abs(value) < _WIDEST:
            query[field] = value
    return query
