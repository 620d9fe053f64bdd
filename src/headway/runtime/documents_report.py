"""What came of a decision about documents."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headway.core.decision import Decision
from headway.core.document import ATTEMPT_COUNT, count
from headway.core.travel import instant
from headway.core.writes import ID
from headway.runtime.documents_choosing import error_type
from headway.runtime.history import IDS_KEPT

KINDS = 100
"""How many kinds of errors are counted apart; documents of others may hold anything."""
OTHERS = "others"
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Refused:
    """A document that was left as it is, and why."""

    document_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """A document as it was before the change, for whoever has to agree to it."""

    document_id: str
    state: str
    attempts: int
    last_error: str


@dataclass(slots=True, kw_only=True)
class DocumentsReport:
    """What came of a decision; while it is carried out, what has come of it so far."""

    decision: Decision
    collection: str
    dry_run: bool
    began: datetime
    selection: str = ""
    """By what they were chosen, in words."""
    at: datetime | None = None
    """When the documents are to be tried again; None: by the next sweep."""
    chosen: int = 0
    """Documents that were there and meant when it began."""
    done: int = 0
    """Of these, changed; in a dry run, those that would be."""
    states: Counter[str] = field(default_factory=Counter)
    """In which states the chosen were."""
    errors: Counter[str] = field(default_factory=Counter)
    """What their last errors were, by type; of very many kinds, the first."""
    first: list[Before] = field(default_factory=list)
    """The first of the chosen."""
    ids: list[str] = field(default_factory=list)
    """Ids of the first hundred."""
    later: int = 0
    """Of the chosen, those that may still be in a worker's hands at the time that was set."""
    refused: Counter[str] = field(default_factory=Counter)
    """How many were left as they are, by reason."""
    first_refused: list[Refused] = field(default_factory=list)
    missing: Sequence[str] = ()
    """Ids that were asked for and were not there."""
    planned: bool = False
    """All that are meant are counted."""
    complete: bool = False
    """All that were counted have had their turn."""

    @property
    def meanwhile(self) -> int:
        """Count those that were not any more, when it was their turn, as they were before."""
        return max(self.chosen - self.done, 0) if self.complete else 0

    @property
    def meant(self) -> int:
        """Count all that were asked for: those that were chosen, refused, or not there."""
        return self.chosen + self.refused.total() + len(self.missing)

    def facts(self) -> Mapping[str, Any]:
        """Give what the history keeps."""
        return {
            "chosen": self.chosen,
            "done": self.done,
            "meanwhile": self.meanwhile,
            "refused": self.refused.total(),
            "ids": self.ids,
            "retryAt": None if self.at is None else instant(self.at),
        }

    def choose(self, document: Mapping[str, Any], state: str) -> None:
        """Record that a document is to be changed."""
        self.chosen += 1
        self.states[state] += 1
        add_kind(self.errors, error_type(document))
        if len(self.first) < _SHOWN:
            attempts = count(document, ATTEMPT_COUNT)
            self.first.append(
                Before(
                    document_id=str(document[ID]),
                    state=state,
                    attempts=attempts,
                    last_error=error_type(document),
                )
            )
        if len(self.ids) < IDS_KEPT:
            self.ids.append(str(document[ID]))

    def refuse(self, document: Mapping[str, Any], reason: str) -> None:
        """Record that a document is left as it is."""
        self.refused[reason] += 1
        if len(self.first_refused) < _SHOWN:
            self.first_refused.append(Refused(str(document[ID]), reason))


OnReport = Callable[[DocumentsReport], object]


def add_kind(counter: Counter[str], kind: str) -> None:
    """Count one of a kind; when there are too many kinds, as one of the others."""
    counter[kind if kind in counter or len(counter) < KINDS else OTHERS] += 1
