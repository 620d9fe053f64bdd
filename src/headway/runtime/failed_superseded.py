"""Letters that time has overtaken.

Their documents were worked on again since they were written, or are gone; or the same work, by its
idempotency key, was sent anew and done.
"""

from collections.abc import Mapping, Sequence

from headway.core.decision import archive_of
from headway.core.document import LAST_OPERATION
from headway.core.letter import Letter
from headway.core.lifecycle import Lifecycle, State
from headway.core.writes import Document
from headway.ports.documents import Documents
from headway.ports.history import History
from headway.ports.records import SWALLOWS, DoneRecord, DoneRecords, key_after
from headway.runtime.history import Subject, read_history

SUPERSEDED = (
    "superseded: the same work was done since, or its documents were processed or taken up by "
    "another operation"
)
GONE = (
    "its document is gone: purged or archived since, or not there yet; what was archived comes "
    "back with headway documents restore"
)
_LONGEST_CHAIN = 100


async def find_superseded(
    documents: Documents,
    records: DoneRecords,
    letters: Sequence[Letter],
    history: History | None = None,
) -> Mapping[str, str]:
    """Give the ids of the letters that are superseded, each with the reason; by few reads.

    With a history, those too whose documents are gone from a collection that is kept in this store.
    """
    by_documents = await _by_documents(documents, letters, history)
    return by_documents | dict.fromkeys(await _by_key(records, letters), SUPERSEDED)


async def _by_key(records: DoneRecords, letters: Sequence[Letter]) -> frozenset[str]:
    """Follow the work that came after each letter under the same key, until one was done."""
    done: set[str] = set()
    after = {
        letter.letter_id: key_after(letter.done_key, letter.operation)
        for letter in letters
        if letter.done_key
    }
    for _ in range(_LONGEST_CHAIN):
        found = await records.find(list(after.values())) if after else {}
        if not found:
            break
        done.update(one for one, key in after.items() if key in found and _was_done(found[key]))
        after = {
            one: key_after(key, found[key].operation)
            for one, key in after.items()
            if key in found and one not in done
        }
    return frozenset(done)


def _was_done(record: DoneRecord) -> bool:
    return record.ended in SWALLOWS


async def _by_documents(
    documents: Documents, letters: Sequence[Letter], history: History | None
) -> dict[str, str]:
    wanted: dict[str, dict[str, None]] = {}
    for letter in letters:
        if letter.document_ids:
            wanted.setdefault(letter.collection, {}).update(dict.fromkeys(letter.document_ids))
    found = {name: await documents.fetch(name, list(ids)) for name, ids in wanted.items()}
    missing = {name for name, ids in wanted.items() if len(found[name]) < len(ids)}
    kept = {name for name in missing if history and await _is_kept(name, documents, history)}
    reasons: dict[str, str] = {}
    for letter in letters:
        there = found.get(letter.collection, {})
        is_gone = any(one not in there for one in letter.document_ids)
        others = (there[one] for one in letter.document_ids if one in there)
        if letter.document_ids and all(_left_behind(each, letter) for each in others):
            if not is_gone:
                reasons[letter.letter_id] = SUPERSEDED
            elif letter.collection in kept:
                reasons[letter.letter_id] = GONE
    return reasons


async def _is_kept(collection: str, documents: Documents, history: History) -> bool:
    """Say whether a store keeps a collection, or did: else nothing of it can be gone from there."""
    for name in (collection, archive_of(collection)):
        if await documents.find(name, {}, 1):
            return True
    return bool(await read_history(history, 1, Subject.COLLECTION, collection))


def _left_behind(document: Document, letter: Letter) -> bool:
    """A document that was reset, without an operation of its own, still waits for this one."""
    if Lifecycle(letter.collection).state(document) is State.PROCESSED:
        return True
    last = document.get(LAST_OPERATION)
    return last is not None and last != letter.operation
