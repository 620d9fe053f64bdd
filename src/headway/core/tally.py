"""How many documents are stuck."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What is stuck in a collection."""

    stuck: int
    """Documents that count as such (`core.stuck.is_stuck`)."""
    given_up: int
    oldest: datetime | None = None
    """When the oldest stuck one was last attempted, or made; None: there is none, or no time."""
