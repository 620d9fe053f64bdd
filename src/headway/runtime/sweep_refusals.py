"""Documents that cannot be swept: find out which they are, leave them out, and name them.

A validator, a unique index, a trigger or a limit of size is about one document, and the store
answers for all that it was asked for together. So what failed is asked for again by halves, down to
the one whose fault it is. That one is left out, and the others are changed. Of what a bus refuses,
its sender finds out the same.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headway.core.catalogue import DEFAULT_CLASSIFIER
from headway.core.errors import ConfigurationError, UnsendableError
from headway.core.failure import words
from headway.core.secrets import hidden
from headway.core.sweep_facts import DocumentsRefused

T = TypeVar("T")
_MOST = 10_000
"""Refusals in one run. Then it is not about single documents, and the run is broken off."""
_MOST_LOCKED = 50
"""The same for what takes its time: a store that waits before it says that something is locked."""
_NAMED = 5
_ABOUT_ALL = frozenset({"CONNECTION_ERROR", "CREDENTIALS_REFUSED", "RESOURCES_EXHAUSTED"})
_LOCKED = frozenset({"OC000_TRANSACTION_CONFLICT", "QUERY_CANCELLED"})


@dataclass(slots=True)
class _Kind:
    first_error: str
    by_bus: bool
    ids: dict[str, None] = field(default_factory=dict)


class Refusals:
    """What was refused in one run over one collection."""

    def __init__(self) -> None:
        self._refused = self._locked = 0
        self._kinds: dict[str, _Kind] = {}

    @property
    def errors(self) -> Counter[str]:
        return Counter({name: len(kind.ids) for name, kind in self._kinds.items()})

    @property
    def count(self) -> int:
        return sum(len(kind.ids) for kind in self._kinds.values())

    async def change(
        self,
        items: Sequence[T],
        ask: Callable[[Sequence[T]], Awaitable[frozenset[str]]],
        id_of: Callable[[T], str],
    ) -> frozenset[str]:
        """Change what the store lets be changed; give the ids that it gives.

        What it refuses is taken down. What somebody else has locked is neither changed nor refused.
        """
        try:
            return await ask(items)
        except Exception as error:
            kind = DEFAULT_CLASSIFIER.classify(error)
            is_locked = kind.error_type in _LOCKED
            self._locked += is_locked
            self._refused += not is_locked
            if (
                isinstance(error, ConfigurationError)
                or kind.error_type in _ABOUT_ALL
                or kind.rule.startswith("sqlite.busy")  # which locks all of a file
                or self._refused > _MOST
                or self._locked > _MOST_LOCKED
            ):
                raise
            if len(items) == 1:
                if not is_locked:
                    self.take_down(id_of(items[0]), error)
                return frozenset()
        half = len(items) // 2
        first = await self.change(items[:half], ask, id_of)
        return first | await self.change(items[half:], ask, id_of)

    def take_down(self, one: str, error: Exception) -> None:
        """Note whose fault an error is."""
        first = _Kind(hidden(words(error)), by_bus=isinstance(error, UnsendableError))
        self._kinds.setdefault(type(error).__name__, first).ids[one] = None

    def among(self, ids: Iterable[str]) -> int:
        """Count those of some documents that were refused."""
        return sum(any(one in kind.ids for kind in self._kinds.values()) for one in ids)

    def facts(self, collection: str) -> list[DocumentsRefused]:
        """Say it once for each kind of error: there may be very many of them, in every run."""
        return [
            DocumentsRefused(
                collection=collection,
                error_type=name,
                count=len(kind.ids),
                first_ids=tuple(kind.ids)[:_NAMED],
                first_error=kind.first_error,
                by_bus=kind.by_bus,
            )
            for name, kind in self._kinds.items()
        ]
