"""Documents as sweepers see them: found by indexes, claimed by conditional changes."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pymongo
from pymongo import UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure, PyMongoError

from headway.adapters.mongodb.claiming import Claimer, grouped, is_written_by_server
from headway.adapters.mongodb.connecting import Collection, Link
from headway.adapters.mongodb.exact import unchanged
from headway.adapters.mongodb.ids import id_of
from headway.adapters.mongodb.reading import Found, ids_of, read
from headway.adapters.mongodb.tallying import tally
from headway.adapters.mongodb.transactions import Transactions
from headway.adapters.mongodb.troubles import is_too_slow
from headway.adapters.mongodb.values import Raw, kept
from headway.adapters.mongodb.values import view as shown
from headway.adapters.mongodb.views import (
    Look,
    has_lease,
    indexes,
    is_in,
    is_without_index,
    leased,
    looks,
)
from headway.core.beginning import UNCLAIMED
from headway.core.document import CLAIM_BEFORE, CLAIM_TOKEN, LAST_ATTEMPT_TIME, RETRY_AT, STATUS
from headway.core.lifecycle import State
from headway.core.sweep import SweepRule, given_up, watched
from headway.core.writes import ID, Document
from headway.ports.candidates import Claim, Tally, View

_OTHER_NAME = frozenset({85, 86})
"""The index is there, under another name or with other options."""
_TWO_ARRAYS = 171
_AT_ONCE = 1_000
_LOG = logging.getLogger("headway")
_PATIENCE_SECONDS = 1.0
"""With a statement for many: it stands still at the first one that another transaction keeps."""
_LET_GO = {"$unset": dict.fromkeys(UNCLAIMED, "")}
_TO_GIVE_BACK = {
    "$and": [
        {"$eq": [{"$type": f"${CLAIM_BEFORE}"}, "object"]},
        {"$eq": [f"${STATUS}", State.PENDING.value]},
    ]
}
_SCHEDULED = {"$ne": [{"$ifNull": [f"${RETRY_AT}", None]}, None]}
_BEFORE: Raw = {
    "$mergeObjects": [
        f"${CLAIM_BEFORE}",
        {"$cond": [_SCHEDULED, {RETRY_AT: f"${RETRY_AT}"}, {}]},
    ]
}
_GIVEN_BACK = [
    {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"$cond": [_TO_GIVE_BACK, _BEFORE, {}]}]}},
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
                    if error.code == _TWO_ARRAYS:
                        _LOG.warning(
                            "%s: a document has lists where times or words belong, so an index "
                            "cannot be made and every sweep reads all documents: %s",
                            rule.collection,
                            error,
                        )
                    elif error.code not in _OTHER_NAME:
                        raise

    async def scan(
        self, rule: SweepRule, view: View, now: datetime, *, newest_first: bool, page: int
    ) -> AsyncIterator[Sequence[Document]]:
        found, collection = Found(), await self._link.theirs(rule.collection)
        parts = looks(rule, view, now)
        for look in reversed(parts) if newest_first else parts:
            looking = self._look(collection, look, newest_first=newest_first, page=page)
            async with aclosing(looking):  # whoever stops early leaves no cursor behind
                async for raw in looking:
                    document = shown(raw)
                    if is_in(rule, view, document, now):
                        found.put(raw, document)
                        if len(found) == page:
                            if documents := await found.reachable(collection):
                                yield documents
                            found = Found()
        if documents := await found.reachable(collection):
            yield documents

    async def leased(self, rule: SweepRule, now: datetime, at_most: int) -> int:
        collection, number = await self._link.theirs(rule.collection), 0
        looking = self._look(collection, leased(rule, now), newest_first=False, page=_AT_ONCE)
        async with aclosing(looking):
            async for raw in looking:
                number += has_lease(rule, shown(raw), now)
                if number == at_most:
                    break
        return number

    async def claim(
        self, rule: SweepRule, claims: Sequence[Claim], token: str, now: datetime, lease: timedelta
    ) -> frozenset[str]:
        claimer = Claimer(rule=rule, token=token, now=now, until=now + lease)
        groups, apart = grouped(claims, rule)
        collection = await self._link.theirs(rule.collection)
        won: set[str] = set()
        for group in groups:
            ids = await ids_of(collection, [claim.document[ID] for claim in group])
            alike = [
                claim
                for claim in group
                if is_written_by_server(one := claim.document[ID], ids.get(one))
            ]
            ours = await self._claim_alike(collection, claimer, alike, ids) if alike else set()
            won |= ours
            apart += [claim for claim in group if claim.document[ID] not in ours]
        for start in range(0, len(apart), _AT_ONCE):
            some = apart[start : start + _AT_ONCE]
            one_by_one = partial(self._claim_one_by_one, collection, claimer)
            won.update(*await self._transactions.run_free(some, one_by_one))
        return frozenset(won)

    async def published(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        await self._end(rule, ids, token, _LET_GO)

    async def give_back(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        await self._end(rule, ids, token, _GIVEN_BACK)

    async def give_up(
        self, rule: SweepRule, documents: Sequence[Document], now: datetime
    ) -> frozenset[str]:
        done: set[str] = set()
        collection = await self._link.theirs(rule.collection)
        for start in range(0, len(documents), _AT_ONCE):
            some = documents[start : start + _AT_ONCE]
            give_up = partial(self._give_up, collection, rule, now)
            done.update(*await self._transactions.run_free(some, give_up))
        return frozenset(done)

    async def tally(self, rule: SweepRule, now: datetime) -> Tally:
        return await tally(await self._link.theirs(rule.collection), rule, now)

    async def _look(
        self, collection: Collection, look: Look, *, newest_first: bool, page: int
    ) -> AsyncGenerator[Raw]:
        direction = -1 if newest_first else 1
        cursor = collection.find(
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
                    yield raw
        except OperationFailure as error:
            if look.index is None or not is_first or not is_without_index(error):
                raise
            anyhow = Look(look.query, None)
            looking = self._look(collection, anyhow, newest_first=newest_first, page=page)
            async with aclosing(looking):
                async for raw in looking:
                    yield raw

    async def _claim_alike(
        self,
        collection: Collection,
        claimer: Claimer,
        claims: Sequence[Claim],
        ids: Mapping[str, Any],
    ) -> set[str]:
        """Claim by one statement what is not kept by anybody; what it missed may still be free."""
        names = {claim.document[ID] for claim in claims}
        query, update = claimer.many(claims, [ids[one] for one in names])
        if await _changed(collection, query, update) == len(names):
            return names
        ours = collection.find({ID: query[ID], CLAIM_TOKEN: claimer.token}, {ID: 1})
        return {id_of(raw[ID]) async for raw in ours}

    async def _claim_one_by_one(
        self,
        collection: Collection,
        claimer: Claimer,
        claims: Sequence[Claim],
        session: AsyncClientSession,
    ) -> frozenset[str]:
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
        # A statement that was given up as too slow may have gone on for a while.
        ours = {one for one, raw in found.items() if raw.get(CLAIM_TOKEN) == claimer.token}
        return frozenset(ours.union(same))

    async def _give_up(
        self,
        collection: Collection,
        rule: SweepRule,
        now: datetime,
        documents: Sequence[Document],
        session: AsyncClientSession,
    ) -> frozenset[str]:
        found = await read(collection, [each[ID] for each in documents], session)
        same = unchanged(documents, found, watched(rule))
        if same:
            those = {ID: {"$in": list(same.values())}}
            changes = {"$set": kept(given_up(rule, now))}
            await collection.update_many(those, changes, session=session)
        return frozenset(same)

    async def _end(self, rule: SweepRule, names: Sequence[str], token: str, update: Any) -> None:
        """End claims. One on a document that somebody keeps ends by itself, when its time is up."""
        collection = await self._link.theirs(rule.collection)

        async def end(ids: Sequence[Any], session: AsyncClientSession) -> None:
            those = {ID: {"$in": list(ids)}, CLAIM_TOKEN: token}
            await collection.update_many(those, update, session=session)

        for start in range(0, len(names), _AT_ONCE):
            ids = list((await ids_of(collection, names[start : start + _AT_ONCE])).values())
            those = {ID: {"$in": ids}, CLAIM_TOKEN: token}
            if await _changed(collection, those, update) is None:
                await self._transactions.run_free(ids, end)


async def _changed(collection: Collection, query: Raw, update: Any) -> int | None:
    """Change what nobody keeps for long; say how many, or None if somebody did."""
    try:
        with pymongo.timeout(_PATIENCE_SECONDS):
            return (await collection.update_many(query, update)).modified_count
    except PyMongoError as error:
        if not is_too_slow(error):
            raise
        return None
