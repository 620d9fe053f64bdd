"""What service authors measure in their own code."""

from collections.abc import Mapping
from typing import Protocol


class Metrics(Protocol):
    """Counts and measures. Thread-safe, and quick enough for a handler.

    A name keeps its kind and its tags; the names of counters end in `_total`. Whoever uses a name
    otherwise gets a ConfigurationError, each time: in a test, with any implementation, it shows.
    """

    def increment(self, name: str, value: float = 1, tags: Mapping[str, str] | None = None) -> None:
        """Add to a count that only grows."""
        ...

    def observe(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Take down one of many values, such as a duration or a size."""
        ...

    def gauge(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Say what a value is at present."""
        ...
