"""What is offered to a resequencer, and what became of it."""

from datetime import datetime
from enum import StrEnum

import msgspec

from headway.core.sequence_state import HIGHEST
from headway.core.showing import shown


class Result(msgspec.Struct, frozen=True, gc=False):
    """One result of a key, in whatever order it came; the fields mean what they do in an offer."""

    key: str
    position: int
    payload: bytes = b""
    step: int = 1
    begins: int = 0
    applied: int | None = None
    caught_up: datetime | None = None

    def __post_init__(self) -> None:
        # Before anything is asked: an engine that has stored half of it cannot take it back.
        key: object = self.key
        if not isinstance(key, str) or not key:
            raise ValueError(f"key: {key!r} is not accepted: use a text that is not empty")
        if type(self.payload) is not bytes:
            kind = type(self.payload).__name__
            raise ValueError(
                f"a payload of type {kind} of {shown(key)!r} is not accepted: encode it to bytes"
            )
        if not _is_whole(self.position, 0):
            raise self._refused("position", self.position, f"from 0 to {HIGHEST}")
        if not _is_whole(self.step, 1):
            raise self._refused("step", self.step, f"from 1 to {HIGHEST}")
        if not _is_whole(self.begins, -HIGHEST):
            raise self._refused("begins", self.begins, f"up to {HIGHEST}")
        if self.applied is not None and not _is_whole(self.applied, -HIGHEST):
            raise self._refused("applied", self.applied, f"up to {HIGHEST}, or None")

    def _refused(self, what: str, value: object, which: str) -> ValueError:
        return ValueError(
            f"{what} of {shown(self.key)!r}: {shown(repr(value))} is not accepted: use a whole "
            f"number (int) {which}"
        )


class Disposition(StrEnum):
    """What became of a result. But for LEFT, the source need not keep it any longer."""

    APPLIED = "applied"
    HELD = "held"
    """It is stored, and applied when its turn comes."""
    DUPLICATE = "duplicate"
    """It was applied before."""
    PASSED = "passed"
    """The engine is away: it was processed without its order."""
    LEFT = "left"
    """It is neither applied nor stored: the source has to give it again."""


def _is_whole(value: object, least: int) -> bool:
    """Say whether it is a number that every engine keeps as it is; True is none, nor is 1.0."""
    return type(value) is int and least <= value <= HIGHEST
