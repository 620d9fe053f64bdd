"""What is known of sweeps at one instant. What nobody could say is None, and never 0."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headway.core.sweep_facts import SweepEnded
from headway.core.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFigures:
    """The numbers that metrics of sweeps are made of."""

    at: datetime
    """When they were looked up."""
    collections: tuple[str, ...]
    """Those that are swept."""
    tallies: Mapping[str, Tally | None]
    """What is stuck, by collection. One that is missing here was not asked for."""
    totals: Mapping[str, float] | None
    """All that sweeps ever added up (`core.sweep_totals`)."""
    last_totals: Mapping[str, float] | None = None
    """What that was when it was last known. Only for those to whom it was shown before: what others
    have pushed since may be more."""
    held_back: Mapping[str, int | None] = field(default_factory=dict)
    """What the last run left for later ones, by collection."""
    last_run: datetime | None = None
    """When it ended. None: none has ended here yet."""

    @property
    def database_up(self) -> bool:
        """Say whether the store answered everything it was asked."""
        return self.totals is not None and None not in self.tallies.values()


def held_back(ended: SweepEnded, collections: Iterable[str]) -> dict[str, int | None]:
    """Say what a run held back; None where it did not look, or was broken off before it knew."""
    swept = {one.collection: one for one in ended.collections}
    return {
        name: swept[name].held_back
        if name in swept and (swept[name].held_back or swept[name].tally is not None)
        else None
        for name in collections
    }
