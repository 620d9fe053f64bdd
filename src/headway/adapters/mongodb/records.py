"""Done-records: found, sent, decided about, and forgotten."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import DuplicateKeyError

from headway.adapters.mongodb.connecting import Link, logs_in_again
from headway.adapters.mongodb.naming import DONE, HELD, TOTALS
from headway.adapters.mongodb.rows import (
    FINAL,
    SENT,
    decided,
    part_ids,
    record_of,
    row_of,
    sent_to,
)
from headway.adapters.mongodb.transactions import Transactions
from headway.adapters.mongodb.values import Raw, milliseconds
from headway.core.letter import requeued_letter
from headway.core.writes import ID
from headway.ports.records import DoneRecord, Ended

FORGOTTEN = {"headway": "forgotten"}
"""The id under which is kept how many were forgotten; no group of totals can have it."""
_ORPHANS = 1_000
_FORGETTABLE = (*FINAL, Ended.REQUEUED.value)


class MongoRecords:
    """Reads what commits have written, and forgets what is old."""

    def __init__(self, link: Link, transactions: Transactions) -> None:
        self._link = link
        self._transactions = transactions

    @logs_in_again
    async def find(self, keys: Sequence[str]) -> Mapping[str, DoneRecord]:
        if not keys:
            return {}
        rows = (await self._link.ours(DONE)).find({ID: {"$in": list(keys)}})
        return {record.key: record for record in await self._records(await rows.to_list())}

    @logs_in_again
    async def undispatched(self, before: datetime, limit: int) -> Sequence[DoneRecord]:
        rows = (await self._link.ours(DONE)).find(
            {"unsent": True, "at": {"$lt": milliseconds(before)}},
            sort=[("at", 1), ("seq", 1)],
            limit=limit,
        )
        return await self._records(await rows.to_list())

    async def dispatched(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        done, these = await self._link.ours(DONE), {ID: {"$in": list(keys)}}
        simple = await done.update_many({**these, "spread": None}, SENT)
        if simple.matched_count < len(set(keys)):
            rows = await done.find(these, {"spread": 1}).to_list()
            await done.update_many(these, SENT)
            for row in rows:
                await self.drop_parts(row)

    async def forget(self, before: datetime, limit: int) -> int:
        for name in (DONE, TOTALS):  # inside the transaction it would be too late
            await self._link.ours(name)
        await self._drop_orphans(milliseconds(before))
        return await self._transactions.run(
            lambda session: self._forget(milliseconds(before), limit, session)
        )

    async def keep(self, record: DoneRecord, generation: str) -> None:
        """Write a record unless it is there, outside of any unit."""
        row, parts = row_of(record, generation)
        await self.keep_parts(parts)
        with suppress(DuplicateKeyError):
            await (await self._link.ours(DONE)).insert_one(row)

    async def keep_parts(self, parts: Sequence[Raw]) -> None:
        """Write what does not fit into a record; the record makes it count."""
        for part in parts:
            await (await self._link.ours(HELD)).insert_one(part)

    async def drop_parts(self, row: Mapping[str, Any]) -> None:
        """Remove what does not fit into a record, if there is anything."""
        if "spread" in row:
            await (await self._link.ours(HELD)).delete_many({"by": row["spread"]["by"]})

    async def _records(self, rows: Sequence[Raw]) -> list[DoneRecord]:
        wanted = [part for row in rows for part in part_ids(row)]
        parts: dict[str, bytes] = {}
        if wanted:
            found = (await self._link.ours(HELD)).find({ID: {"$in": wanted}})
            parts = {part[ID]: part["data"] async for part in found}
        return [
            # Where parts have gone since the first look, somebody else has sent all of it.
            record_of(row if parts.keys() >= set(part_ids(row)) else _sent(row), parts)
            for row in rows
        ]

    async def _forget(self, before: datetime, limit: int, session: AsyncClientSession) -> int:
        """Remove old records; what is left of an operation without any is a number."""
        done = await self._link.ours(DONE)
        old = await done.find(
            {"ended": {"$in": _FORGETTABLE}, "at": {"$lt": before}, "unsent": None},
            {"queue": 1, "operation": 1, "ended": 1},
            sort=[("at", 1)],
            limit=limit,
            session=session,
        ).to_list()
        if not old:
            return 0
        await done.delete_many({ID: {"$in": [row[ID] for row in old]}}, session=session)
        owned = {(row["queue"], row["operation"]): row["ended"] for row in old}
        traces = done.find(
            {"operation": {"$in": [operation for _, operation in owned]}, "again": True},
            {"queue": 1, "operation": 1},
            session=session,
        )
        left = {(row["queue"], row["operation"]) async for row in traces}
        # What was requeued may still wait in a queue, which is elsewhere.
        gone = [end for key, end in owned.items() if key not in left and end != Ended.REQUEUED]
        if gone:
            counted = {"done": len(gone), "purged": gone.count(Ended.PURGED)}
            totals = await self._link.ours(TOTALS)
            await totals.update_one(
                {ID: FORGOTTEN}, {"$inc": counted}, upsert=True, session=session
            )
        return len(old)

    async def _drop_orphans(self, before: datetime) -> None:
        """Remove parts that no record counts on: whoever wrote them died, or was too late."""
        held = await self._link.ours(HELD)
        old = await held.find({"at": {"$lt": before}}, {"key": 1, "by": 1}).to_list(_ORPHANS)
        if old:
            keys = {"$in": [part["key"] for part in old]}
            rows = (await self._link.ours(DONE)).find({ID: keys, "unsent": True}, {"spread": 1})
            needed = {row.get("spread", {}).get("by") async for row in rows}
            orphans = [part[ID] for part in old if part["by"] not in needed]
            await held.delete_many({ID: {"$in": orphans}})


class MongoDecisions:
    """Takes down what a person decided."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def requeued(self, failed_queue: str, letter_id: str, to: str | None) -> None:
        ends = [Ended.FAILED.value, Ended.PURGED.value]
        about = {"letter": letter_id, "ended": {"$in": ends}, **_of(failed_queue)}
        await (await self._link.ours(DONE)).update_many(about, decided(sent_to(to)))

    async def purged(self, failed_queue: str, letter_ids: Sequence[str]) -> None:
        letters = {"$in": list(letter_ids)}
        about = {"letter": letters, "ended": Ended.FAILED.value, **_of(failed_queue)}
        await (await self._link.ours(DONE)).update_many(about, decided(Ended.PURGED.value))


async def came_again(link: Link, queue: str, generation: str, session: AsyncClientSession) -> None:
    """An event that was sent again has ended: see that the record of its failure says so."""
    letter = requeued_letter(generation)
    if letter is not None:
        about = {"letter": letter, "ended": Ended.FAILED.value}
        await (await link.ours(DONE)).update_many(about, decided(sent_to(queue)), session=session)


def _of(failed_queue: str) -> dict[str, Any]:
    return {"failed_queue": {"$in": ["", failed_queue]}}


def _sent(row: Raw) -> Raw:
    return {field: value for field, value in row.items() if field != "spread"}
