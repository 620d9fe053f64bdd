"""Make the events of documents that are due, some at a time, before any of them is claimed.

`rebuild=` is code of the user's own, and may take its time: nobody else in the process does
anything meanwhile. So after a moment others get their turn, above all the renewal of the lead; and
a claim, which ends by itself, is made when the event is there.
"""

from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta

from headway.core.writes import ID
from headway.ports.candidates import Claim
from headway.ports.clock import Clock
from headway.runtime.sweep_events import Sending, rebuilt
from headway.runtime.sweep_targets import Target

TURN = timedelta(seconds=1)
"""How long events are made in a row; one is made however long it takes."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """A document of which no event can be made."""

    document_id: str
    error: BaseException


@dataclass(slots=True)
class Made:
    """What came of some documents."""

    sendings: list[Sending] = field(default_factory=list)
    unfit: list[Unfit] = field(default_factory=list)
    is_slow: bool = False
    """The turn was over before there were enough."""


def make(target: Target, due: deque[Claim], most: int, clock: Clock) -> Made:
    """Take documents that are due, and make events of them: so many, or what a turn allows."""
    made, began = Made(), clock.now()
    now = began
    while due and len(made.sendings) < most and not made.is_slow:
        claim = due.popleft()
        try:
            made.sendings.append(rebuilt(target, claim.document, claim.requeue, now))
        # Nothing is awaited here, so whatever is raised is of the user's own making, also a
        # cancellation, and what a library does that would rather end the process.
        except BaseException as error:  # noqa: BLE001 (code and types of the user's own)
            made.unfit.append(Unfit(str(claim.document[ID]), error))
        now = clock.now()
        made.is_slow = now - began >= TURN
    return made
