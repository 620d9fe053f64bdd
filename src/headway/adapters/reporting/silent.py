"""Report to nobody."""

from collections.abc import Mapping
from typing import Any


class NoReporter:
    """For tests, and where the log is enough."""

    def report(self, error: BaseException, context: Mapping[str, Any]) -> None:
        pass
