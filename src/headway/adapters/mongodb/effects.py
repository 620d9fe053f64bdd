"""What handlers write to documents, inside a transaction that somebody else commits."""

from collections.abc import Sequence

from pymongo import InsertOne, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession

from headway.adapters.mongodb.changing import change
from headway.adapters.mongodb.connecting import Link
from headway.adapters.mongodb.reading import read
from headway.adapters.mongodb.values import Raw, kept, view
from headway.core.changes import Changes, Key, wanted
from headway.core.writes import ID, Update
from headway.ports.commit import Unit


async def make_sure(link: Link, units: Sequence[Unit]) -> None:
    """Have the collections made that writes may need, before the transaction."""
    writes = (write for unit in units for write in unit.writes)
    await link.make_sure(*{w.collection for w in writes if not isinstance(w, Update)})


async def write(link: Link, units: Sequence[Unit], session: AsyncClientSession) -> list[int]:
    """Write; say how many documents of `insert_new` each unit found there."""
    writes = [write for unit in units for write in unit.writes]
    if not writes:
        return [0] * len(units)
    raw: dict[Key, Raw] = {}
    for collection, ids in wanted(writes).items():
        found = await read(await link.theirs(collection), ids, session)
        raw.update({(collection, one): each for one, each in found.items()})
    changes = Changes({key: view(each) for key, each in raw.items()})
    skipped = [changes.apply(unit.writes) for unit in units]
    await _store(link, changes, raw, session)
    return skipped


async def _store(
    link: Link, changes: Changes, raw: dict[Key, Raw], session: AsyncClientSession
) -> None:
    operations: dict[str, list[InsertOne[Raw] | UpdateOne]] = {}
    for key, document in changes.changed.items():
        its = operations.setdefault(key[0], [])
        if key not in raw:
            its.append(InsertOne(kept(document)))
        elif (update := change(raw[key], changes.before[key], document)) is not None:
            its.append(UpdateOne({ID: raw[key][ID]}, update))
    for collection, its in operations.items():
        if its:
            named = await link.theirs(collection)
            await named.bulk_write(its, ordered=False, session=session)
