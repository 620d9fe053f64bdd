"""How many documents are stuck."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What is stuck in a collection."""

    stuck: int
    """Documents that count as such (`core.stuck.is_stuck`)."""
    given_up: int
    permanent: int = 0
    """Documents that failed permanently (`core.sweep.stays_failed`): no sweep takes them up."""
    oldest: datetime | None = None
    """When the oldest stuck one was last attempted, or made; None: there is none, or no time."""
