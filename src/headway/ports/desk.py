"""Documents, as an operator sees them: what is looked at, reset, removed or put away."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from headway.core.lifecycle import Lifecycle, State
from headway.core.writes import Document


class DocumentDesk(Protocol):
    """Changes documents because a person said so."""

    def browse(
        self, lifecycle: Lifecycle, states: Sequence[State], *, page: int
    ) -> AsyncIterator[Sequence[Document]]:
        """Give the documents that are in one of these states, page by page, by their ids."""
        ...

    async def collections(self) -> Sequence[str]:
        """Name the collections in which there is a document, in the order of their names."""
        ...

    async def change(
        self, collection: str, documents: Sequence[Document], changes: Mapping[str, Any]
    ) -> frozenset[str]:
        """Change fields of those whose status is as it was read; give their ids."""
        ...

    async def remove(self, collection: str, documents: Sequence[Document]) -> frozenset[str]:
        """Remove those whose status is as it was read; give their ids."""
        ...

    async def move(self, collection: str, documents: Sequence[Document], to: str) -> frozenset[str]:
        """Move those whose status is as it was read to another collection, each as one.

        One whose id is taken there stays where it is.
        """
        ...
