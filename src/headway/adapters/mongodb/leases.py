"""Leases by name, by the time of the server."""

import re
from collections.abc import Sequence
from datetime import timedelta

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from headway.adapters.mongodb.connecting import Link
from headway.adapters.mongodb.naming import LEASES
from headway.core.writes import ID

_OVER = {"$lte": [{"$ifNull": ["$until", "$$NOW"]}, "$$NOW"]}


class MongoLeases:
    """Keeps who holds what; the server compares its own times."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def hold(self, name: str, token: str, lease: timedelta) -> bool:
        ours = {"$literal": token}
        free = {"$or": [_OVER, {"$eq": ["$token", ours]}]}
        until = {"$add": ["$$NOW", lease // timedelta(milliseconds=1)]}
        change = [
            {
                "$set": {
                    "token": {"$cond": [free, ours, "$token"]},
                    "until": {"$cond": [free, until, "$until"]},
                }
            }
        ]
        leases = await self._link.ours(LEASES)
        while True:
            try:
                after = await leases.find_one_and_update(
                    {ID: name}, change, upsert=True, return_document=ReturnDocument.AFTER
                )
            except DuplicateKeyError:  # somebody else made it just now
                continue
            return after is not None and after["token"] == token

    async def let_go(self, name: str, token: str) -> None:
        await (await self._link.ours(LEASES)).delete_one({ID: name, "token": token})

    async def held(self, prefix: str) -> Sequence[str]:
        running = {
            ID: {"$regex": f"^{re.escape(prefix)}"},
            "$expr": {"$gt": ["$until", "$$NOW"]},
        }
        rows = (await self._link.ours(LEASES)).find(running, {ID: 1}).sort(ID, 1)
        return [row[ID] async for row in rows]
