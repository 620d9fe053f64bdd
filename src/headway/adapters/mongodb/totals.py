"""Numbers that only rise, one document for each group."""

from collections.abc import Mapping
from urllib.parse import unquote

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from headway.adapters.mongodb.connecting import Link
from headway.adapters.mongodb.naming import TOTALS
from headway.core.writes import ID

_SIGNS = str.maketrans({"%": "%25", ".": "%2E", "$": "%24"})
"""In names of fields they mean something to MongoDB."""


class MongoTotals:
    """Adds on the server, so that nothing is read first."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def add(self, group: str, increments: Mapping[str, float]) -> Mapping[str, float]:
        totals = await self._link.ours(TOTALS)
        if not increments:
            return _read(await totals.find_one({ID: group}))
        by = {f"totals.{name.translate(_SIGNS)}": value for name, value in increments.items()}
        while True:
            try:
                after = await totals.find_one_and_update(
                    {ID: group}, {"$inc": by}, upsert=True, return_document=ReturnDocument.AFTER
                )
            except DuplicateKeyError:  # somebody else made it just now
                continue
            return _read(after)


def _read(found: Mapping[str, Mapping[str, float]] | None) -> dict[str, float]:
    return {unquote(name): value for name, value in found["totals"].items()} if found else {}
