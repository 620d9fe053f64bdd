"""How a worker process works."""

from dataclasses import dataclass
from datetime import timedelta

from headway.core.errors import ConfigurationError

LAST_COMMIT = timedelta(seconds=5)
"""How long the last commits may take at least, after the order to stop."""
_FAREWELL = timedelta(seconds=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How much one worker process does at once, and how it stops."""

    concurrency: int = 10
    """Handlers that run at the same time."""
    prefetch: int | None = None
    """Events taken ahead of the handlers; by their speed if not given."""
    grace: timedelta = timedelta(seconds=30)
    """How long handlers may go on after the order to stop."""
    retention: timedelta = timedelta(days=7)
    """How long done work is remembered, and a redelivery of it recognised."""
    requeue_at_start: bool = False
    """Sweep once before anything is taken: what is stuck is not left to the next sweep."""

    @property
    def longest_stop(self) -> timedelta:
        """How long a worker may take to stop: its handlers, its last commits, its farewell."""
        return self.grace + max(self.grace, LAST_COMMIT) + _FAREWELL

    def __post_init__(self) -> None:
        for name, value in (("concurrency", self.concurrency), ("prefetch", self.prefetch)):
            if value is not None and value < 1:
                raise ConfigurationError(
                    f"{name}={value!r} is not accepted: use a whole number from 1"
                )
