"""Find documents by the texts that name them, whatever their ids are in the database."""

from collections.abc import Iterable, Sequence
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession

from headway.adapters.mongodb.connecting import Collection
from headway.adapters.mongodb.values import Raw, id_of, likely_ids, unlikely_ids
from headway.core.writes import ID

AT_ONCE = 5_000


async def read(
    collection: Collection, ids: Iterable[str], session: AsyncClientSession | None = None
) -> dict[str, Raw]:
    """Give the documents that are there, by the texts of their ids."""
    wanted = list(dict.fromkeys(ids))
    found: dict[str, Raw] = {}
    await _read(collection, [each for one in wanted for each in likely_ids(one)], session, found)
    if len(found) < len(wanted):
        rest = [each for one in wanted if one not in found for each in unlikely_ids(one)]
        await _read(collection, rest, session, found)
    return found


async def _read(
    collection: Collection,
    ids: Sequence[Any],
    session: AsyncClientSession | None,
    found: dict[str, Raw],
) -> None:
    for start in range(0, len(ids), AT_ONCE):
        some = {ID: {"$in": ids[start : start + AT_ONCE]}}
        async for raw in collection.find(some, session=session):
            one = id_of(raw[ID])
            # A text goes before an ObjectId that is shown as the same.
            if one not in found or isinstance(raw[ID], str):
                found[one] = raw
