"""The history of changes, in the database that was changed."""

from collections.abc import Sequence

from bson import Timestamp

from headway.adapters.mongodb.connecting import Link
from headway.adapters.mongodb.naming import NOTES
from headway.adapters.mongodb.values import view
from headway.core.writes import ID, Document
from headway.ports.history import KEPT, appended_at

_NEWEST = [("at", -1), ("seq", -1)]
_OLDEST = [("at", 1), ("seq", 1)]
_AT_ONCE = 1_000


class MongoHistory:
    """Entries are documents of a collection of ours."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def append(self, entry: Document) -> None:
        ours = await self._link.ours(NOTES)
        # The server fills in `seq`, each one higher than the last.
        note = {"at": appended_at(entry), "seq": Timestamp(0, 0), "entry": entry}
        await ours.insert_one(note)
        too_many = await ours.estimated_document_count() - KEPT
        if too_many > 0:
            oldest = ours.find({}, {ID: 1}, sort=_OLDEST, limit=min(too_many, _AT_ONCE))
            ids = [row[ID] async for row in oldest]
            await ours.delete_many({ID: {"$in": ids}})

    async def latest(self, limit: int) -> Sequence[Document]:
        rows = (await self._link.ours(NOTES)).find({}, sort=_NEWEST, limit=limit)
        return [view(row["entry"]) async for row in rows]
