"""What is offered to a resequencer, and what became of it."""

from datetime import datetime
from enum import StrEnum

import msgspec


class Result(msgspec.Struct, frozen=True, gc=False):
    """One result of a key, in whatever order it came; the fields mean what they do in an offer."""

    key: str
    position: int
    payload: bytes = b""
    step: int = 1
    begins: int = 0
    applied: int | None = None
    caught_up: datetime | None = None


class Fate(StrEnum):
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
