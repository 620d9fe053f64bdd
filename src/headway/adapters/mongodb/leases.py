"""Leases by name. Setting the server's clock ends none of them, and prolongs none."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from headway.adapters.mongodb.connecting import Link, logs_in_again
from headway.adapters.mongodb.naming import LEASES
from headway.core.lease_watch import LeaseWatch
from headway.core.writes import ID
from headway.ports.clock import Clock

_MILLISECOND = timedelta(milliseconds=1)
_IS_NEW = {"$eq": [{"$type": "$token"}, "missing"]}


class MongoLeases:
    """Keeps who holds what."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._watch = LeaseWatch()

    @logs_in_again
    async def hold(self, name: str, token: str, lease: timedelta) -> bool:
        there = await self._ask(name, token, lease, _IS_NEW)
        if there["token"] != token:
            if self._unrenewed(name, there) < there["lasts"] * _MILLISECOND:
                return False
            seen = [
                {"$eq": ["$token", {"$literal": there["token"]}]},
                {"$eq": ["$renewals", there["renewals"]]},
            ]
            there = await self._ask(name, token, lease, {"$or": [_IS_NEW, {"$and": seen}]})
        if there["token"] != token:
            return False
        self._unrenewed(name, there)
        return True

    async def let_go(self, name: str, token: str) -> None:
        self._watch.forget(name)
        await (await self._link.ours(LEASES)).delete_one({ID: name, "token": token})

    async def held(self, prefix: str) -> Sequence[str]:
        # None reaches further than it lasts, unless the clock was set back since its last renewal.
        longest = {"$add": ["$$NOW", "$lasts"]}
        running = {
            ID: {"$regex": f"^{re.escape(prefix)}"},
            "$expr": {"$and": [{"$gt": ["$until", "$$NOW"]}, {"$lte": ["$until", longest]}]},
        }
        rows = (await self._link.ours(LEASES)).find(running, {ID: 1}).sort(ID, 1)
        return [row[ID] async for row in rows]

    async def _ask(
        self, name: str, token: str, lease: timedelta, free: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Take the lease if it is ours or free; give it as it is then."""
        ours, lasts = {"$literal": token}, lease // _MILLISECOND
        may = {"$or": [free, {"$eq": ["$token", ours]}]}
        renewals = {"$add": [{"$ifNull": ["$renewals", 0]}, 1]}
        change = [
            {
                "$set": {
                    "token": {"$cond": [may, ours, "$token"]},
                    "until": {"$cond": [may, {"$add": ["$$NOW", lasts]}, "$until"]},
                    "lasts": {"$cond": [may, lasts, "$lasts"]},
                    "renewals": {"$cond": [may, renewals, "$renewals"]},
                }
            }
        ]
        leases = await self._link.ours(LEASES)
        while True:
            try:
                there: Mapping[str, Any] | None = await leases.find_one_and_update(
                    {ID: name}, change, upsert=True, return_document=ReturnDocument.AFTER
                )
            except DuplicateKeyError:  # another process made it just now
                continue
            if there is not None:
                return there

    def _unrenewed(self, name: str, there: Mapping[str, Any]) -> timedelta:
        renewal = there["token"], there["renewals"]
        return self._watch.unrenewed(name, renewal, self._clock.read().steady)
