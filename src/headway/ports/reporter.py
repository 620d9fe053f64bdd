"""Who is told of errors that a person may want to look at."""

from collections.abc import Mapping
from typing import Any, Protocol

OUTCOME = "outcome"
"""In the context of a report: what became of the event that failed."""
RETRYING = "retrying"
RECOVERED = "recovered"
"""It was processed after all: no person has to do anything."""
FINAL = "final"
"""It ended as a dead letter."""


class ErrorReporter(Protocol):
    """Takes one report for each failure. It must not block and must not raise."""

    def report(self, error: BaseException, context: Mapping[str, Any]) -> None: ...
