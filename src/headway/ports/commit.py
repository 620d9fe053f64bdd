"""The one commit: what became of a delivery, with everything that its handler did."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from headway.core.letter import Letter
from headway.core.writes import Write
from headway.ports.bus import Delivery, Message, Then
from headway.ports.records import DoneRecord

TransactionBody = Callable[[Any], object]
"""Statements of the user's own, given the connection or session of the commit."""


class Unit(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A delivery and all that is to happen with it: as one, or not at all."""

    delivery: Delivery
    then: Then
    record: DoneRecord | None = None
    """None: it is not finished (later, parked, handed back)."""
    writes: tuple[Write, ...] = ()
    bodies: tuple[TransactionBody, ...] = ()
    outgoing: tuple[Message, ...] = ()
    letter: Letter | None = None
    failed_queue: str = ""
    """Where the letter goes."""
    resumes: bool = False
    """The record is there already; only what it still holds has to be sent."""

    def unrouted(self, event_types: frozenset[str]) -> frozenset[str]:
        """Name those of these types that it publishes."""
        return event_types.intersection([each.event_type for each in self.outgoing])


class Outcome(StrEnum):
    """What became of a unit."""

    COMMITTED = "committed"
    DUPLICATE = "duplicate"
    """A record with this key was there: nothing but the settlement took effect."""
    LOST = "lost"
    """The delivery belongs to somebody else by now: nothing took effect."""
    REFUSED = "refused"
    """A write or a body raised, whatever it was: nothing took effect, and the delivery is ours.

    So it is, by KeyTakenError, if the key belongs to other work that failed in the meantime.
    """


@dataclass(frozen=True, slots=True)
class Finish:
    """The outcome of one unit."""

    outcome: Outcome
    skipped: int = 0
    """Documents of `insert_new` that were there before."""
    error: Exception | None = None
    """Why it was refused."""
    of_body: bool = False
    """One of its bodies raised the error, and no statement of the engine's own."""
    unrouted: frozenset[str] = frozenset()
    """Types of its outgoing events that no queue took: they are kept as unrouted."""


COMMITTED = Finish(Outcome.COMMITTED)
DUPLICATE = Finish(Outcome.DUPLICATE)
LOST = Finish(Outcome.LOST)


class Finisher(Protocol):
    """Carries units out."""

    @property
    def at_once(self) -> int:
        """How many groups it carries out side by side: 1 where each is one commit on one file.

        More where most of the time is spent waiting for an answer.
        """
        ...

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        """Finish each on its own: one that is refused takes none of the others with it.

        When it returns, everything is stored and settled. When it raises, nothing is known: the
        same units may be given again, and take effect once.
        """
        ...
