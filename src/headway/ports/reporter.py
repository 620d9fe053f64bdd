"""Who is told of errors that a person may want to look at."""

from collections.abc import Mapping
from typing import Any, Protocol


class ErrorReporter(Protocol):
    """Takes one report for each failure. It must not block and must not raise."""

    def report(self, error: BaseException, context: Mapping[str, Any]) -> None: ...
