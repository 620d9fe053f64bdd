"""How operations ended, as their records tell: queues and letters are elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.adapters.mongodb.connecting import SEEN, Link
from headway.adapters.mongodb.naming import DONE, TOTALS
from headway.adapters.mongodb.reading import AT_ONCE
from headway.adapters.mongodb.records import FORGOTTEN
from headway.adapters.mongodb.rows import FINAL
from headway.core.writes import ID
from headway.ports.places import Undecided
from headway.ports.records import Ended

_SAME = {"$and": [{"$eq": ["$operation", "$$operation"]}, {"$eq": ["$queue", "$$queue"]}]}
_MORE_THAN_ONE: list[dict[str, Any]] = [
    {"$match": {"again": True}},
    {"$group": {ID: {"operation": "$operation", "queue": "$queue"}}},
    {
        "$lookup": {
            "from": DONE,
            "let": {"operation": "$_id.operation", "queue": "$_id.queue"},
            "pipeline": [
                {"$match": {"$expr": _SAME, "ended": {"$in": FINAL}}},
                {"$sort": {"seq": 1}},
                {"$project": {"ended": 1}},
            ],
            "as": "ends",
        }
    },
    {"$match": {"ends.1": {"$exists": True}}},
]
"""Operations that were sent again on purpose, and have more than one end for good."""


class MongoEnds:
    """Reads records.

    A letter that its record still holds is as good as written: somebody will send it.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    async def ping(self) -> None:
        await self._forgotten()

    async def count(self) -> tuple[int, int]:
        """Count each operation in a queue once, by its last end."""
        done = await self._link.ours(DONE)
        counts = {end: await self._count(end) for end in FINAL}
        every, purged = sum(counts.values()), counts[Ended.PURGED]
        async for row in await done.aggregate(_MORE_THAN_ONE):
            earlier = [each["ended"] for each in row["ends"][:-1]]
            every -= len(earlier)
            purged -= earlier.count(Ended.PURGED)
        forgotten = await self._forgotten()
        return every + forgotten.get("done", 0), purged + forgotten.get("purged", 0)

    async def _forgotten(self) -> Mapping[str, int]:
        return await (await self._link.ours(TOTALS)).find_one({ID: FORGOTTEN}) or {}

    async def _count(self, end: str) -> int:
        # The old command: it counts the keys of an index without looking at any document.
        database = (await self._link.ours(DONE)).database
        counted = await database.command(
            "count", DONE, query={"ended": end}, readConcern=SEEN.document
        )
        return int(counted["n"])

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        places: dict[str, dict[str, None]] = {}
        different = list(dict.fromkeys(operations))
        done = await self._link.ours(DONE)
        ended = {"$or": [{"ended": {"$in": FINAL}}, {"ended": Ended.FAILED.value, "unsent": True}]}
        for start in range(0, len(different), AT_ONCE):
            named = {"operation": {"$in": different[start : start + AT_ONCE]}}
            async for row in done.find({**named, **ended}, _NAMES):
                failed = row["ended"] == Ended.FAILED
                place = f"failed in {row['failed_queue']}" if failed else f"done in {row['queue']}"
                places.setdefault(row["operation"], {})[place] = None
        return {operation: list(its) for operation, its in places.items()}

    async def undecided(self, limit: int) -> Sequence[Undecided]:
        since = {"$and": [*_SAME["$and"], {"$gt": ["$seq", "$$seq"]}]}
        let = {"operation": "$operation", "queue": "$queue", "seq": "$seq"}
        later = [{"$match": {"$expr": since, "again": True}}, {"$project": {ID: 1}}]
        pipeline: list[dict[str, Any]] = [
            {"$match": {"ended": Ended.FAILED.value, "letter": {"$gt": ""}, "unsent": None}},
            {"$sort": {"seq": 1}},
            {"$lookup": {"from": DONE, "let": let, "pipeline": later, "as": "later"}},
            {"$match": {"later": []}},
            {"$limit": limit},
        ]
        rows = await (await self._link.ours(DONE)).aggregate(pipeline, allowDiskUse=True)
        return [
            Undecided(
                operation=row["operation"],
                queue=row["queue"],
                letter_id=row["letter"],
                failed_queue=row["failed_queue"],
            )
            async for row in rows
        ]


_NAMES = {ID: 0, "operation": 1, "queue": 1, "ended": 1, "failed_queue": 1}
