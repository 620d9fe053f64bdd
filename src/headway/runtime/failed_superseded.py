"""Letters that time has overtaken: their documents were worked on again since they were written."""

from collections.abc import Mapping, Sequence

from headway.core.document import LAST_OPERATION, PROCESSED, STATUS
from headway.core.letter import Letter
from headway.core.writes import Document
from headway.ports.documents import Documents

SUPERSEDED = "superseded: its documents were processed, or taken up by another operation, since"


async def find_superseded(documents: Documents, letters: Sequence[Letter]) -> frozenset[str]:
    """Give the ids of the letters that are superseded, with one read for each collection."""
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
        one in documents and _left_behind(documents[one], letter.operation)
        for one in letter.document_ids
    )


def _left_behind(document: Document, operation: str) -> bool:
    """A document that was reset, without an operation of its own, still waits for this one."""
    if document.get(STATUS) == PROCESSED:
        return True
    last = document.get(LAST_OPERATION)
    return last is not None and last != operation
