"""Letters that time has overtaken.

Their documents were worked on again since they were written, or are gone; or the same work, by its
idempotency key, was sent anew and done.
"""

from collections.abc import Mapping, Sequence

from headway.core.decision import archive_of
from headway.core.document import LAST_OPERATION
from headway.core.letter import Letter
from headway.core.lifecycle import Lifecycle, State
from headway.core.showing import shown
from headway.core.writes import Document
from headway.ports.documents import Documents
from headway.ports.history import History
from headway.ports.records import SWALLOWS, DoneRecord, DoneRecords, key_after
from headway.runtime.history import Subject, read_history

_DONE = "superseded: the same work, by its idempotency key, was sent anew and done since"
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
    return by_documents | dict.fromkeys(await _by_key(records, letters), _DONE)


async def find_processed(documents: Documents, letters: Sequence[Letter]) -> Mapping[str, str]:
    """Give the ids of the letters whose documents are all processed: no worker would run them."""
    found = await _documents_of(documents, letters)
    reasons: dict[str, str] = {}
    for letter in letters:
        there = found.get(letter.collection, {})
        states = [there.get(one) for one in letter.document_ids]
        if states and all(each is not None and _is_processed(each, letter) for each in states):
            named = shown(letter.document_ids[0])
            reasons[letter.letter_id] = (
                f"it would not run: {letter.collection} {named} is processed, and a worker drops "
                "an event whose documents all are. Write pending into its status to have it run, "
                "or purge the dead letter"
            )
    return reasons


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
    found = await _documents_of(documents, letters)
    missing = {
        letter.collection
        for letter in letters
        if any(one not in found[letter.collection] for one in letter.document_ids)
    }
    kept = {name for name in missing if history and await _is_kept(name, documents, history)}
    reasons: dict[str, str] = {}
    for letter in letters:
        there = found.get(letter.collection, {})
        is_gone = any(one not in there for one in letter.document_ids)
        others = {one: there[one] for one in letter.document_ids if one in there}
        if letter.document_ids and all(_left_behind(each, letter) for each in others.values()):
            if not is_gone:
                reasons[letter.letter_id] = _overtaken(others, letter)
            elif letter.collection in kept:
                reasons[letter.letter_id] = GONE
    return reasons


async def _documents_of(
    documents: Documents, letters: Sequence[Letter]
) -> Mapping[str, Mapping[str, Document]]:
    wanted: dict[str, dict[str, None]] = {}
    for letter in letters:
        if letter.document_ids:
            wanted.setdefault(letter.collection, {}).update(dict.fromkeys(letter.document_ids))
    return {name: await documents.fetch(name, list(ids)) for name, ids in wanted.items()}


def _overtaken(documents: Mapping[str, Document], letter: Letter) -> str:
    """Say what became of the first document since."""
    one, document = next(iter(documents.items()))
    is_processed = _is_processed(document, letter)
    became = "is processed" if is_processed else "was taken up by another operation since"
    return f"superseded: {letter.collection} {shown(one)} {became}"


def _is_processed(document: Document, letter: Letter) -> bool:
    return Lifecycle(letter.collection).state(document) is State.PROCESSED


async def _is_kept(collection: str, documents: Documents, history: History) -> bool:
    """Say whether a store keeps a collection, or did: else nothing of it can be gone from there."""
    for name in (collection, archive_of(collection)):
        if await documents.find(name, {}, 1):
            return True
    return bool(await read_history(history, 1, Subject.COLLECTION, collection))


def _left_behind(document: Document, letter: Letter) -> bool:
    """A document that was reset, without an operation of its own, still waits for this one."""
    if _is_processed(document, letter):
        return True
    last = document.get(LAST_OPERATION)
    return last is not None and last != letter.operation
