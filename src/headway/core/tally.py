"""How many documents are stuck."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What is stuck in a collection."""

    stuck: int
    """In the views FAILED and UNMOVED of `ports.candidates`, without what is only young."""
    given_up: int
    oldest: datetime | None = None
    """When the oldest stuck one was last attempted, or made; None: there is none, or no time."""
