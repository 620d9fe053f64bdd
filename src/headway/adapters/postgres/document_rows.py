"""Rows of documents inside a transaction: locked as they are read, changed by their fields.

Rows are locked in one order, that of collection and id, and new ones are inserted in the same order
afterwards; then the others are changed. So no two of our transactions wait for each other. What
nobody touched keeps its digits, whoever wrote it: only the fields that have changed are written.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from headway.adapters.postgres.link import MeanwhileError
from headway.adapters.postgres.values import by_id, check_id, document, jsonb
from headway.core.changes import Key
from headway.core.writes import Document

_LOCK = """
select id, body::text from headway_documents
where collection = $1 and id = any($2::text[]) order by id for update
"""
_LOCK_FREE = f"{_LOCK} skip locked"
_THERE = "select id from headway_documents where collection = $1 and id = any($2::text[])"
_CHANGE = """
update headway_documents set body = body || ($3::jsonb -> id)
where collection = $1 and id = any($2::text[])
"""
_INSERT = """
insert into headway_documents (collection, id, body)
select collection, id, body::jsonb
from unnest($1::text[], $2::text[], $3::text[]) as made (collection, id, body)
order by collection, id
on conflict do nothing
returning 1
"""


async def lock(connection: Any, keys: Iterable[Key], *, waits: bool = True) -> dict[Key, Document]:
    """Give the documents that are there; nobody else changes them until the transaction ends.

    Without waiting, those are left out that somebody else has locked.
    """
    wanted = _by_collection(keys)
    found: dict[Key, Document] = {}
    for collection in sorted(wanted):
        rows = await connection.fetch(
            _LOCK if waits else _LOCK_FREE, collection, wanted[collection]
        )
        found.update({(collection, one): document(one, body) for one, body in rows})
    return found


async def there(connection: Any, keys: Iterable[Key]) -> set[Key]:
    """Say which documents are there, whoever has locked them."""
    found: set[Key] = set()
    for collection, ids in _by_collection(keys).items():
        found |= {(collection, row[0]) for row in await connection.fetch(_THERE, collection, ids)}
    return found


def _by_collection(keys: Iterable[Key]) -> dict[str, list[str]]:
    wanted: dict[str, list[str]] = {}
    for collection, one in keys:
        wanted.setdefault(collection, []).append(one)
    return wanted


async def store(
    connection: Any, before: Mapping[Key, Document], after: Mapping[Key, Document]
) -> None:
    """Store documents of which those in `before` are locked, and the others were not there.

    Raises:
        MeanwhileError: One of the others is there by now.
    """
    changed: dict[str, dict[str, str]] = {}
    made: list[tuple[str, str, str]] = []
    for (collection, one), whole in after.items():
        whose = f"{collection}/{one}"
        was = before.get((collection, one))
        if was is None:
            check_id(collection, one)
            made.append((collection, one, jsonb(whole, whose)))
        elif fields := changes(was, whole):
            changed.setdefault(collection, {})[one] = jsonb(fields, whose)
    # First the new ones: whoever inserts an id that is there waits if it was changed, not if it is
    # only locked. After the changes nothing is waited for, so nobody can wait for us and we for it.
    if made:
        columns = [list(column) for column in zip(*made, strict=True)]
        if len(await connection.fetch(_INSERT, *columns)) < len(made):
            raise MeanwhileError
    for collection, its in changed.items():
        await connection.execute(_CHANGE, collection, list(its), by_id(its))


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Document:
    """Give the fields that are not the very same; no write removes any."""
    return {
        field: value
        for field, value in after.items()
        if field not in before or before[field] is not value
    }
