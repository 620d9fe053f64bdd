"""Numbers that only rise, kept in the store: a process that ends takes nothing with it."""

from collections.abc import Mapping
from typing import Protocol


class Totals(Protocol):
    """Adds up what short-lived processes count."""

    async def add(self, group: str, increments: Mapping[str, float]) -> Mapping[str, float]:
        """Add to the totals of a group, all as one; give all that the group has."""
        ...
