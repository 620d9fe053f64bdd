"""Files that were refused before, and whose letters still wait: a second one would say the same."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headway.assembly.connection import Connection
from headway.core.document import moment
from headway.core.letter import Letter
from headway.systems.consensus import failures
from headway.systems.consensus.mail.finding import split_member
from headway.systems.consensus.mail.naming import in_text

QUEUE = "archive.ingestion.failed"
_REFUSALS = frozenset(
    each.__name__
    for each in (failures.NotMailError, failures.TooLargeError, failures.UnreadableMailError)
)
"""By what a file holds. Another error may be gone by now, so such a file is tried again."""
_ALL = 10_000_000


async def without_refused(headway: Connection, archives: Sequence[str]) -> list[str]:
    """Leave out what was refused and has not changed since, as long as its letter waits."""
    refused: dict[str, datetime] = {}
    for letter in await headway.failed.inspect(QUEUE, limit=_ALL):
        path, at = _path_of(letter), moment(letter.timestamp)
        if path and at is not None and letter.error_type in _REFUSALS:
            refused[path] = max(at, refused.get(path, at))
    return [each for each in archives if not _is_unchanged(each, refused)]


def _path_of(letter: Letter) -> str:
    event: Any = letter.original_event
    data = event.get("data") if isinstance(event, dict) else None
    path = data.get("path") if isinstance(data, dict) else None
    return path if isinstance(path, str) else ""


def _is_unchanged(path: str, refused: dict[str, datetime]) -> bool:
    at = refused.get(in_text(str(Path(path).absolute())))
    if at is None:
        return False
    file = Path(split_member(path)[0])
    try:
        found = file.stat()
    except OSError:
        return False  # what is wrong now is another thing
    # Both: one may be set at will, and the other is not kept everywhere.
    changed = datetime.fromtimestamp(max(found.st_mtime, found.st_ctime), UTC)
    return file.is_file() and changed < at
