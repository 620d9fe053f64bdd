"""What a resequencer announces, after it is settled."""

from dataclasses import dataclass
from datetime import timedelta

from headway.core.sequence_state import Why


@dataclass(frozen=True, slots=True)
class ResultHeld:
    """A result came before its turn, and is stored until then."""

    key: str
    position: int
    held: int
    """How many the key holds now."""


@dataclass(frozen=True, slots=True)
class ResultReleased:
    """A held result was applied."""

    key: str
    position: int


@dataclass(frozen=True, slots=True)
class StaleDropped:
    """Held results turned out to be applied already."""

    key: str
    number: int


@dataclass(frozen=True, slots=True)
class KeyCleared:
    """The last held result of a key was applied."""

    key: str


@dataclass(frozen=True, slots=True)
class GapGivenUp:
    """The wait for a gap has ended without the missing result."""

    key: str
    why: Why
    held: int
    """How many results waited for it."""


@dataclass(frozen=True, slots=True)
class LookScheduled:
    """A check of a key was scheduled."""

    key: str
    delay: timedelta
    again: bool
    """A look found the gap still there."""


@dataclass(frozen=True, slots=True)
class LookNotScheduled:
    """A scheduler could not be reached: the index of due keys finds the key instead."""

    key: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class ResultFailed:
    """A result could not be applied, and is tried again later."""

    key: str
    position: int
    attempt: int
    error: BaseException
    wait: timedelta | None
    """None: it was not the caller's any more."""


@dataclass(frozen=True, slots=True)
class TurnLost:
    """A result was applied after its lease had ended: another worker has the key."""

    key: str
    position: int


@dataclass(frozen=True, slots=True)
class SequencesAway:
    """The engine of sequences is not reached; from now on nothing waits for it."""

    error: BaseException
    patience: timedelta


@dataclass(frozen=True, slots=True)
class SequencesBack:
    """The engine of sequences is reached again."""

    away_for: timedelta


@dataclass(frozen=True, slots=True)
class ResultsPassed:
    """Results went on without their order, because the engine was away."""

    number: int


SequenceFact = (
    ResultHeld
    | ResultReleased
    | StaleDropped
    | KeyCleared
    | GapGivenUp
    | LookScheduled
    | LookNotScheduled
    | ResultFailed
    | TurnLost
    | SequencesAway
    | SequencesBack
    | ResultsPassed
)
