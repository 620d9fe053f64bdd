"""Sequences: the results of each key, given out in their order by one decision at a time.

Every call is a batch, and every decision in it is atomic and by itself: one key never waits for
another, nor for one that cannot be read. That one is logged: its offers are UNREADABLE, its
completions are refused, and looks at it find nothing. The answers are those of
`core.sequence.Sequencer`; what an engine answers differently is its fault. Each engine takes the
time from one clock, so clocks of workers are never compared.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from headway.core.errors import HeadwayError
from headway.core.sequence_answers import Completed, Completion, Look, Looked, Offer, Offered, Turn
from headway.core.sequence_settings import SequenceSettings
from headway.core.sequence_state import KeyState
from headway.core.showing import shown
from headway.ports.history import History


class UnreadableKeyError(HeadwayError):
    """What is kept of a key is nothing that an engine has written."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(
            f"what is kept of {shown(key)!r} cannot be read ({shown(why)}): mend it, or forget the "
            "key, so that it begins anew"
        )


class Sequences(Protocol):
    """What workers and drainers call. Where an answer holds work, that is the caller's now."""

    settings: SequenceSettings

    async def offer(self, offers: Sequence[Offer]) -> Sequence[Offered]:
        """Say for each result, in this order, what becomes of it; held ones are stored now."""
        ...

    async def complete(self, done: Sequence[Completion]) -> Sequence[Completed]:
        """Move markers forward, and hand out what comes next of each key."""
        ...

    async def look(self, looks: Sequence[Look]) -> Sequence[Looked]:
        """Take over what nobody is at any more, and give up what took too long."""
        ...

    async def due(self, limit: int) -> Sequence[str]:
        """Name keys that have to be looked at now, the longest due first.

        They are kept from other callers for one lease, so that two do not look at the same one.
        """
        ...

    async def give_back(self, offer: Offer, delay: timedelta | None = None) -> timedelta | None:
        """Hold work that could not be applied; None: it was not the caller's any more.

        The offer is what was offered, or what was in the work. Without a delay, the schedule's.
        """
        ...

    async def renew(self, work: Turn) -> bool:
        """Prolong the lease of work that takes long; False: it is not the caller's any more."""
        ...

    async def close(self) -> None:
        """Let go of the engine."""
        ...


class HeldResult(msgspec.Struct, frozen=True, gc=False):
    """A held result with what is in it."""

    position: int
    payload: bytes


class Reading(msgspec.Struct, frozen=True):
    """A key as an operator sees it."""

    key: str
    state: KeyState
    now: datetime
    """By the clock of the engine."""


class SequenceDesk(Protocol):
    """What operators call."""

    settings: SequenceSettings
    history: History
    """Of what operators changed, kept beside the sequences."""
    family: str
    """The name of the resequencer that the keys belong to."""

    async def read(self, key: str) -> Reading:
        """Give all that is known of a key; of an unknown one that is nothing."""
        ...

    async def held(self, key: str, limit: int) -> Sequence[HeldResult]:
        """Give the first held results of a key."""
        ...

    async def waiting(self, limit: int) -> tuple[int, Sequence[str]]:
        """Count the keys that hold results, and name the first of them by when they are due."""
        ...

    async def families(self) -> Sequence[str] | None:
        """Name all whose keys are kept here, ours or not. None: the engine cannot tell."""
        ...

    async def drain(self, key: str) -> bool:
        """Give up all gaps of a key: the next look hands out. False: it holds nothing."""
        ...

    async def forget(self, key: str) -> int:
        """Remove a key with all that it holds, and say how much that was."""
        ...


class SequenceEngine(Sequences, SequenceDesk, Protocol):
    """Both sides of an engine, which is one object everywhere."""
