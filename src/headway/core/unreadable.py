"""What lies where a document should be, and is none: it is shown, left alone, and can be removed.

Other programs write into the same tables. What they put there may be no JSON, or no object. Nobody
works on it; a stand-in takes its place wherever it is looked at, and its state is foreign.
"""

from collections.abc import Mapping
from typing import Any

from headway.core.document import LAST_ERROR, STATUS

UNREADABLE = "$unreadable"
"""Holds all that was found. No document has a field of this name: MongoDB would not take it."""
_WORD = "unreadable"
CURE = "write it as a JSON object by hand, or purge it by its id (headway documents purge)"


def stand_in(document_id: str, found: str | bytes) -> dict[str, Any]:
    """Give what is shown instead of something that nobody can read."""
    text = found if isinstance(found, str) else found.decode(errors="backslashreplace")
    return {
        "_id": document_id,
        STATUS: _WORD,
        LAST_ERROR: {"type": _WORD, "message": f"it is no document: {CURE}"},
        UNREADABLE: text,
    }


def is_stand_in(document: Mapping[str, Any]) -> bool:
    """Say whether this stands for something that nobody can read."""
    return UNREADABLE in document
