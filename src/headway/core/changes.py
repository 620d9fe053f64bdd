"""What the writes of one or many units make of documents, before any of it is stored.

A store reads what the writes are about, applies them here, and stores what has changed: so every
write means the same on every store.
"""

from collections.abc import Iterable, Mapping

from headway.core.errors import UnreadableDocumentError
from headway.core.unreadable import is_stand_in
from headway.core.writes import Document, InsertNew, Write, applied, target

Key = tuple[str, str]
"""A collection and an id in it."""


def wanted(writes: Iterable[Write]) -> dict[str, list[str]]:
    """Say which documents have to be read, by collection."""
    ids: dict[str, dict[str, None]] = {}
    for write in writes:
        ids.setdefault(write.collection, {})[target(write)] = None
    return {collection: list(its) for collection, its in ids.items()}


class Changes:
    """Documents as they were read, and as they are after the writes so far."""

    def __init__(self, found: Mapping[Key, Document]) -> None:
        self.before = found
        self._now = dict(found)
        self._changed: dict[Key, None] = {}

    def apply(self, writes: Iterable[Write]) -> int:
        """Apply writes in their order; say how many documents of `insert_new` were there.

        Raises:
            UnreadableDocumentError: What is there is no document, and stays as it is.
            Exception: Whatever `applied` raises.
        """
        skipped = 0
        for write in writes:
            key = write.collection, target(write)
            current = self._now.get(key)
            after = applied(write, current)
            if after is not current:
                if current is not None and is_stand_in(current):
                    raise UnreadableDocumentError(write.collection, [key[1]])
                self._now[key] = after
                self._changed[key] = None
            elif isinstance(write, InsertNew):
                skipped += 1
        return skipped

    @property
    def changed(self) -> dict[Key, Document]:
        """Give what has to be stored; what is not in `before` is new."""
        return {key: self._now[key] for key in self._changed}
