"""Documents as sweepers see them: found by indexes, claimed by conditional changes."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pymongo import UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure

from headway.adapters.mongodb.claiming import Claimer, grouped
from headway.adapters.mongodb.connecting import Link
from headway.adapters.mongodb.exact import unchanged
from headway.adapters.mongodb.reading import read
from headway.adapters.mongodb.tallying import tally
from headway.adapters.mongodb.transactions import Transactions
from headway.adapters.mongodb.values import id_of, kept, likely_ids, unlikely_ids, view
from headway.adapters.mongodb.views import Look, indexes, is_in, is_without_index, looks
from headway.core.beginning import UNCLAIMED
from headway.core.document import CLAIM_BEFORE, CLAIM_TOKEN, LAST_ATTEMPT_TIME
from headway.core.sweep import SweepRule, given_up, watched
from headway.core.writes import ID, Document
from headway.ports.candidates import Claim, Tally, View

_OTHER_NAME = frozenset({85, 86})
"""The index is there, under another name or with other options."""
_AT_ONCE = 1_000
_LET_GO = {"$unset": dict.fromkeys(UNCLAIMED, "")}
_IS_THERE = {"$eq": [{"$type": f"${CLAIM_BEFORE}"}, "object"]}
_GIVEN_BACK = [
    {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"$cond": [_IS_THERE, f"${CLAIM_BEFORE}", {}]}]}},
    {"$unset": list(UNCLAIMED)},
]


class MongoCandidates:
    """Finds and claims."""

    def __init__(self, link: Link, transactions: Transactions) -> None:
        self._link = link
        self._transactions = transactions

    async def prepare(self, rules: Sequence[SweepRule]) -> None:
        for rule in rules:
            await self._link.make_sure(rule.collection)
            collection = await self._link.theirs(rule.collection)
            for index in indexes(rule.lifecycle):
                try:
                    await collection.create_indexes([index])
                except OperationFailure as error:
                    if error.code not in _OTHER_NAME:
                        raise

    async def scan(
        self, rule: SweepRule, view: View, now: datetime, *, newest_first: bool, page: int
    ) -> AsyncIterator[Sequence[Document]]:
        found: list[Document] = []
        parts = looks(rule, view, now)
        for look in reversed(parts) if newest_first else parts:
            looking = self._look(rule, look, newest_first=newest_first, page=page)
            async with aclosing(looking):  # whoever stops early leaves no cursor behind
                async for document in looking:
                    if is_in(rule, view, document, now):
                        found.append(document)
                        if len(found) == page:
                            yield found
                            found = []
        if found:
            yield found

    async def claim(
        self, rule: SweepRule, claims: Sequence[Claim], token: str, now: datetime, lease: timedelta
    ) -> frozenset[str]:
        claimer = Claimer(rule=rule, token=token, now=now, until=now + lease)
        groups, apart = grouped(claims, rule)
        collection = await self._link.theirs(rule.collection)
        won: set[str] = set()
        for group in groups:
            query, update = claimer.many(group)
            result = await collection.update_many(query, update)
            ids = {claim.document[ID] for claim in group}
            if result.modified_count < len(ids):
                ours = collection.find({ID: query[ID], CLAIM_TOKEN: token}, {ID: 1})
                ids = {id_of(raw[ID]) async for raw in ours}
                apart += [claim for claim in group if claim.document[ID] not in ids]
            won |= ids
        for start in range(0, len(apart), _AT_ONCE):
            some = apart[start : start + _AT_ONCE]
            won |= await self._transactions.run(partial(self._claim_one_by_one, claimer, some))
        return frozenset(won)

    async def published(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        await self._end(rule, ids, token, _LET_GO)

    async def give_back(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        await self._end(rule, ids, token, _GIVEN_BACK)

    async def give_up(
        self, rule: SweepRule, documents: Sequence[Document], now: datetime
    ) -> frozenset[str]:
        done: set[str] = set()
        for start in range(0, len(documents), _AT_ONCE):
            some = documents[start : start + _AT_ONCE]
            done |= await self._transactions.run(partial(self._give_up, rule, some, now))
        return frozenset(done)

    async def tally(self, rule: SweepRule, now: datetime) -> Tally:
        return await tally(await self._link.theirs(rule.collection), rule, now)

    async def _look(
        self, rule: SweepRule, look: Look, *, newest_first: bool, page: int
    ) -> AsyncGenerator[Document]:
        direction = -1 if newest_first else 1
        cursor = (await self._link.theirs(rule.collection)).find(
            look.query,
            sort=[(LAST_ATTEMPT_TIME, direction), (ID, direction)],
            batch_size=page,
            allow_disk_use=True,
            hint=look.index and list(look.index),
        )
        is_first = True
        try:
            async with cursor:
                async for raw in cursor:
                    is_first = False
                    yield view(raw)
        except OperationFailure as error:
            if look.index is None or not is_first or not is_without_index(error):
                raise
            anyhow = Look(look.query, None)
            looking = self._look(rule, anyhow, newest_first=newest_first, page=page)
            async with aclosing(looking):
                async for document in looking:
                    yield document

    async def _claim_one_by_one(
        self, claimer: Claimer, claims: Sequence[Claim], session: AsyncClientSession
    ) -> frozenset[str]:
        collection = await self._link.theirs(claimer.rule.collection)
        documents = [claim.document for claim in claims]
        found = await read(collection, [each[ID] for each in documents], session)
        same = unchanged(documents, found, watched(claimer.rule))
        if same:
            updates = [
                UpdateOne({ID: same[claim.document[ID]]}, claimer.one(claim))
                for claim in claims
                if claim.document[ID] in same
            ]
            await collection.bulk_write(updates, ordered=False, session=session)
        return frozenset(same)

    async def _give_up(
        self,
        rule: SweepRule,
        documents: Sequence[Document],
        now: datetime,
        session: AsyncClientSession,
    ) -> frozenset[str]:
        collection = await self._link.theirs(rule.collection)
        found = await read(collection, [each[ID] for each in documents], session)
        same = unchanged(documents, found, watched(rule))
        if same:
            those = {ID: {"$in": list(same.values())}}
            changes = {"$set": kept(given_up(rule, now))}
            await collection.update_many(those, changes, session=session)
        return frozenset(same)

    async def _end(self, rule: SweepRule, ids: Sequence[str], token: str, update: Any) -> None:
        collection = await self._link.theirs(rule.collection)
        for start in range(0, len(ids), _AT_ONCE):
            some = ids[start : start + _AT_ONCE]
            those = [each for one in some for each in likely_ids(one)]
            done = await collection.update_many({ID: {"$in": those}, CLAIM_TOKEN: token}, update)
            rest = [each for one in some for each in unlikely_ids(one)]
            if rest and done.matched_count < len(some):
                await collection.update_many({ID: {"$in": rest}, CLAIM_TOKEN: token}, update)
