"""Rows that hold documents, and those among them that are still as somebody read them."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headway.adapters.sqlite.statements import as_json, insert
from headway.core.unreadable import stand_in
from headway.core.writes import ID, Document

_AT_ONCE = 5_000
_FETCH = """
select id, body from headway_documents
where collection = ? and id in (select value from json_each(?))
"""
PUT = "into headway_documents (collection, id, body)"
OVER = "on conflict (collection, id) do update set body = excluded.body"
_DOCUMENT = msgspec.json.Decoder(Document)


def read_row(one: str, body: Any) -> Document | None:
    """Read a document; None: somebody else's program has put something there that is none."""
    if not isinstance(body, str):
        return None  # as the indexes see it
    try:
        document = _DOCUMENT.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return document if document.get(ID) == one else {**document, ID: one}


def shown_row(one: str, body: Any) -> Document:
    """Read a document, or give a stand-in for what is none."""
    document = read_row(one, body)
    if document is not None:
        return document
    return stand_in(one, body if isinstance(body, str | bytes) else str(body))


def fetch_rows(
    connection: sqlite3.Connection, collection: str, ids: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """Give the rows that are there, whatever they hold."""
    for start in range(0, len(ids), _AT_ONCE):
        wanted = as_json(ids[start : start + _AT_ONCE])
        yield from connection.execute(_FETCH, (collection, wanted)).fetchall()


def fetch(
    connection: sqlite3.Connection, collection: str, ids: Sequence[str]
) -> dict[str, Document]:
    """Give the documents that are there and can be read."""
    read = ((one, read_row(one, body)) for one, body in fetch_rows(connection, collection, ids))
    return {one: document for one, document in read if document is not None}


def as_read(
    connection: sqlite3.Connection,
    collection: str,
    documents: Sequence[Document],
    fields: Sequence[str],
) -> dict[str, Document]:
    """Give what is stored, of the documents in which these fields are as they were read."""
    stored = fetch(connection, collection, [document[ID] for document in documents])
    return {
        document[ID]: stored[document[ID]]
        for document in documents
        if document[ID] in stored and _same(stored[document[ID]], document, fields)
    }


def put(
    connection: sqlite3.Connection,
    collection: str,
    documents: Mapping[str, Document],
    changes: Callable[[Document], Mapping[str, Any]],
) -> None:
    """Change documents and store them."""
    rows = [
        (collection, one, as_json({**document, **changes(document)}))
        for one, document in documents.items()
    ]
    insert(connection, PUT, rows, OVER)


def _same(stored: Document, document: Document, fields: Iterable[str]) -> bool:
    return all(stored.get(field) == document.get(field) for field in fields)
