"""What came of a change to a failed queue."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headway.runtime.history import IDS_KEPT


@dataclass(frozen=True, slots=True)
class Skipped:
    """A letter that was left where it is, and why."""

    letter_id: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of a change; while it runs, what has come of it so far."""

    what: Literal["requeue", "purge"]
    queue: str
    dry_run: bool
    chosen: Sequence[str] = ()
    """Ids of the letters that were there and meant when it began; no others are touched."""
    done: int = 0
    """Of these, requeued or purged; in a dry run, those that would be."""
    targets: Counter[str] = field(default_factory=Counter)
    """How many went to which queue."""
    moved: int = 0
    """Of the done, those that go to another queue than the one they came from. That queue refuses
    an operation that it has had itself; only it knows, so in a dry run these may still be skipped.
    """
    skipped: list[Skipped] = field(default_factory=list)
    unselected: list[Skipped] = field(default_factory=list)
    """Asked for by id, there, and left out by another condition."""
    gone: int = 0
    """Somebody else decided upon them meanwhile."""
    missing: Sequence[str] = ()
    """Ids that were asked for and were not there."""

    def facts(self) -> Mapping[str, Any]:
        """Give what the history keeps."""
        return {
            "chosen": len(self.chosen),
            "done": self.done,
            "skipped": len(self.skipped),
            "gone": self.gone,
            "targets": dict(self.targets),
            "ids": list(self.chosen[:IDS_KEPT]),
        }

    @property
    def passed(self) -> int:
        """Count the letters that are dealt with, one way or another."""
        return self.done + len(self.skipped) + self.gone


OnProgress = Callable[[Report], object]
