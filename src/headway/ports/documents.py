"""Documents, as a handler sees them. Writes are not here: they belong to the commit."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from headway.core.beginning import Beginning, Begun
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

    async def begin(self, beginnings: Sequence[Beginning]) -> Sequence[Mapping[str, Begun]]:
        """Let operations begin, each with the documents that are there; `begun` says what it means.

        Every document is decided and changed as one: of many who begin at the same time, one after
        the other does.
        """
        ...

    async def renew(self, collection: str, tokens: Mapping[str, str], until: datetime) -> int:
        """Prolong leases, given by document; say how many still bear their token."""
        ...
