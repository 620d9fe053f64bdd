"""Letters that time has overtaken.

Their documents were worked on again since they were written, or the same work, by its idempotency
key, was sent anew and done.
"""

from collections.abc import Mapping, Sequence

from headway.core.document import LAST_OPERATION
from headway.core.letter import Letter
from headway.core.lifecycle import Lifecycle, State
from headway.core.writes import Document
from headway.ports.documents import Documents
from headway.ports.records import SWALLOWS, DoneRecord, DoneRecords, key_after

SUPERSEDED = (
    "superseded: the same work was done since, or its documents were processed or taken up by "
    "another operation"
)
_LONGEST_CHAIN = 100


async def find_superseded(
    documents: Documents, records: DoneRecords, letters: Sequence[Letter]
) -> frozenset[str]:
    """Give the ids of the letters that are superseded, with few reads for all of them."""
    return await _by_documents(documents, letters) | await _by_key(records, letters)


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


async def _by_documents(documents: Documents, letters: Sequence[Letter]) -> frozenset[str]:
    wanted: dict[str, dict[str, None]] = {}
    for letter in letters:
        if letter.document_ids:
            wanted.setdefault(letter.collection, {}).update(dict.fromkeys(letter.document_ids))
    found = {name: await documents.fetch(name, list(ids)) for name, ids in wanted.items()}
    return frozenset(
        letter.letter_id
        for letter in letters
        if letter.document_ids and is_superseded(letter, found[letter.collection])
    )


def is_superseded(letter: Letter, documents: Mapping[str, Document]) -> bool:
    """Say whether every document that a letter is about has left it behind."""
    return bool(letter.document_ids) and all(
        one in documents and _left_behind(documents[one], letter) for one in letter.document_ids
    )


def _left_behind(document: Document, letter: Letter) -> bool:
    """A document that was reset, without an operation of its own, still waits for this one."""
    if Lifecycle(letter.collection).state(document) is State.PROCESSED:
        return True
    last = document.get(LAST_OPERATION)
    return last is not None and last != letter.operation
