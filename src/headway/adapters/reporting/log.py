"""Report errors to a log of their own."""

import logging
from collections.abc import Mapping
from typing import Any

from headway.core.failure import words
from headway.core.showing import shown


class LogReporter:
    """Writes one ERROR line for each report, with the traceback and the context beside it."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._log = logger or logging.getLogger("headway.errors")

    def report(self, error: BaseException, context: Mapping[str, Any]) -> None:
        self._log.error(
            "Error reported: %s",
            shown(f"{type(error).__name__}: {words(error)}"),
            # In one field, because names such as `message` belong to the log record itself.
            extra={"error_type": type(error).__name__, "context": _named(context)},
            exc_info=(type(error), error, error.__traceback__),
        )


def _named(context: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in context.items()}
