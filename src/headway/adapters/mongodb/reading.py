"""Find documents by the texts that name them, whatever their ids are in the database."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pymongo.asynchronous.client_session import AsyncClientSession

from headway.adapters.mongodb.connecting import Collection
from headway.adapters.mongodb.ids import (
    exact_id_of,
    has_text,
    id_of,
    likely_ids,
    may_be_unreadable,
    unlikely_ids,
)
from headway.adapters.mongodb.values import Raw
from headway.core.writes import ID, Document

AT_ONCE = 5_000
_ID_ALONE = {ID: 1}
_LOG = logging.getLogger("headway")


async def read(
    collection: Collection,
    ids: Iterable[str],
    session: AsyncClientSession | None = None,
    fields: Mapping[str, int] | None = None,
) -> dict[str, Raw]:
    """Give the documents that are there, by the texts of their ids."""
    wanted = dict.fromkeys(ids)
    found: dict[str, Raw] = {}

    async def look(values: Sequence[Any]) -> None:
        for start in range(0, len(values), AT_ONCE):
            some = {ID: {"$in": values[start : start + AT_ONCE]}}
            async for raw in collection.find(some, fields, session=session):
                _put(found, wanted, raw)

    await look([each for one in wanted for each in likely_ids(one)])
    if len(found) < len(wanted):
        await look([each for one in wanted if one not in found for each in unlikely_ids(one)])
    return found


def _put(found: dict[str, Raw], wanted: Mapping[str, None], raw: Raw) -> None:
    one = id_of(raw[ID])
    is_text = isinstance(raw[ID], str)
    # A text goes before a number or an ObjectId that is shown as the same.
    if one in wanted and (one not in found or is_text):
        found[one] = raw
    if not is_text and (exact := exact_id_of(raw[ID])) in wanted:
        found[exact] = raw


async def ids_of(collection: Collection, texts: Iterable[str]) -> dict[str, Any]:
    """Give the ids of documents as they are in the database; nearly every text is one itself."""
    texts = list(texts)
    asked = [one for one in texts if len(likely_ids(one)) > 1 or unlikely_ids(one)]
    found = await read(collection, asked, fields=_ID_ALONE) if asked else {}
    doubtful = set(asked)
    given = {one: one for one in texts if one not in doubtful}
    return {**given, **{one: raw[ID] for one, raw in found.items()}}


class Found:
    """Documents that somebody looked for, not by their ids: raw, and as they are shown."""

    def __init__(self) -> None:
        self._ids: list[Any] = []
        self._documents: list[Document] = []

    def __len__(self) -> int:
        return len(self._ids)

    def put(self, raw: Raw, document: Document) -> None:
        self._ids.append(raw[ID])
        self._documents.append(document)

    async def named(self, collection: Collection) -> list[Document]:
        """Give them, each under the text that leads back to it."""
        await self._name(collection)
        return self._documents

    async def reachable(self, collection: Collection) -> list[Document]:
        """Likewise, without those to which no text leads back: they are named in the log."""
        lost = await self._name(collection)
        for at in sorted(lost):
            _LOG.warning(
                "%s: the document with the _id %.200r is left alone: no text names it, because it "
                "holds bytes that are no UTF-8, or a $ inside; give it another _id",
                collection.name,
                self._ids[at],
            )
        return [each for at, each in enumerate(self._documents) if at not in lost]

    async def _name(self, collection: Collection) -> set[int]:
        """Name those anew whose usual text means another; say which have no text at all."""
        lost = {at for at, one in enumerate(self._ids) if not has_text(one)}
        doubtful = {
            at: id_of(one)
            for at, one in enumerate(self._ids)
            if not isinstance(one, str) or may_be_unreadable(one)
        }
        if doubtful:
            query = {ID: {"$in": list(doubtful.values())}}
            there = {raw[ID] async for raw in collection.find(query, _ID_ALONE)}
            for at, text in doubtful.items():
                if not isinstance(self._ids[at], str):
                    if text in there:
                        self._documents[at][ID] = exact_id_of(self._ids[at])
                elif text not in there:
                    lost.add(at)
        return lost
