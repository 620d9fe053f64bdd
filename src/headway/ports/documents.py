"""Documents, as a handler sees them. Writes are not here: they belong to the commit."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from headway.core.writes import Document


class Documents(Protocol):
    """Reads documents, and takes down that an operation has begun to work on them."""

    async def fetch(self, collection: str, ids: Sequence[str]) -> Mapping[str, Document]:
        """Give the documents that are there, by id."""
        ...

    async def find(
        self, collection: str, where: Mapping[str, Any], limit: int
    ) -> Sequence[Document]:
        """Give documents whose fields hold these values, in the order of their ids."""
        ...

    async def begin(
        self, collection: str, ids: Sequence[str], operation: str, now: datetime
    ) -> Mapping[str, Document]:
        """Count an attempt of each document, once for each operation, and give them as they are.

        Where `lastOperation` is another one, `attemptCount` goes up by one and `lastOperation` is
        set; `lastAttemptTime` is now, in any case. Processed ones stay untouched.
        """
        ...
