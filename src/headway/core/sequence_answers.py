"""What is asked of a sequencer, and what it answers."""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from headway.core.sequence_state import HIGHEST, Gap, Why

_SEPARATOR = "|"


class Offer(msgspec.Struct, frozen=True, gc=False):
    """A result that has come, in whatever order."""

    key: str
    position: int
    payload: bytes
    """Opaque: it is kept while the result is held, and given back as it is."""
    token: str
    """Says whose offer it is; one for each offer, the same when the same offer is repeated."""
    step: int = 1
    """How far positions are apart: 1 for sequence numbers, the interval for times."""
    begins: int = 0
    """Where this numbering or interval begins: nothing below it is ever missed."""
    applied: int | None = None
    """What the caller's own store says was applied last: the marker is never behind it."""
    caught_up: datetime | None = None
    """All that reached the source before this instant was offered. None: all until now."""

    def __post_init__(self) -> None:
        if not (_is_whole(self.position, 0) and _is_whole(self.step, 1)):
            raise ValueError(
                f"position={self.position}, step={self.step} of {self.key!r} are not accepted: use "
                f"a position from 0 and a step from 1, both whole numbers up to {HIGHEST}"
            )
        is_known = self.applied is None or _is_whole(self.applied, -HIGHEST)
        if not (is_known and _is_whole(self.begins, -HIGHEST)):
            raise ValueError(
                f"begins={self.begins}, applied={self.applied} of {self.key!r} are not accepted: "
                f"use whole numbers up to {HIGHEST}, or None for applied"
            )
        if not self.token or _SEPARATOR in self.token:
            raise ValueError(
                f"token={self.token!r} is not accepted: use any text without {_SEPARATOR!r}"
            )


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A position that is the caller's now: apply it, then complete it, before the lease ends."""

    key: str
    position: int
    payload: bytes
    token: str
    attempt: int = 1
    """How often it was handed out, this time included."""
    held: bool = False
    """It comes from the held ones; else it is what was just offered."""
    late: bool = False
    """It was given up before: take back what was made up for it."""
    gap: Gap | None = None
    """Positions before it that are given up with it."""


class Outcome(StrEnum):
    """What becomes of an offer."""

    PROCESS = "process"
    """It is its turn: the work is the offer itself."""
    HELD = "held"
    """It is kept, durably, until its turn comes."""
    DUPLICATE = "duplicate"
    """It was applied before, or is older than the first one that was."""
    UNREADABLE = "unreadable"
    """What is kept of its key cannot be read: it was neither taken nor stored."""


class Offered(msgspec.Struct, frozen=True, gc=False):
    """The answer to an offer. Whatever the outcome: if there is work, it is the caller's."""

    outcome: Outcome
    work: Turn | None = None
    held: int = 0
    """How many results the key holds now."""
    again: bool = False
    """It was held already."""
    given_up: Why | None = None
    """This offer ended the wait for a gap: too many results were held behind it."""
    look_in: timedelta | None = None
    """When somebody should look at the key. None: nothing waits for that."""
    stale: int = 0
    """Held results that were dropped: by the caller's own store they are applied."""


class Completion(msgspec.Struct, frozen=True, gc=False):
    """The word that work was applied."""

    key: str
    position: int
    token: str


class Completed(msgspec.Struct, frozen=True, gc=False):
    """The answer to a completion."""

    accepted: bool
    """False: the position was not the caller's any more. It may not go on with the key."""
    released: bool = False
    """It was held until now. Not so if an offer found it applied meanwhile, and dropped it."""
    work: Turn | None = None
    """What comes next of the key, for the same caller and under the same token."""
    held: int = 0
    cleared: bool = False
    """The last of the held results was applied."""
    stale: int = 0
    """Held results that turned out to be applied already, and were dropped."""
    look_in: timedelta | None = None


class Look(msgspec.Struct, frozen=True, gc=False):
    """Somebody looks whether a key has to wait any longer."""

    key: str
    token: str
    caught_up: datetime | None = None
    """As in an offer."""


class Looked(msgspec.Struct, frozen=True, gc=False):
    """The answer to a look."""

    work: Turn | None = None
    held: int = 0
    given_up: Why | None = None
    """This look ended the wait for a gap. Without work: the key is parked."""
    attempt: int = 0
    """How many looks of the schedule are over for this gap."""
    look_in: timedelta | None = None


def _is_whole(value: object, least: int) -> bool:
    """Say whether it is a number that every engine keeps as it is; True is none, nor is 1.0."""
    return type(value) is int and least <= value <= HIGHEST
