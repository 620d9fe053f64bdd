"""Report errors to a log of their own."""

import logging
from collections.abc import Mapping
from typing import Any

from headway.core.failure import words
from headway.core.secrets import hidden, without_secrets
from headway.core.showing import shown
from headway.core.traces import trace
from headway.ports.reporter import OUTCOME, RECOVERED, RETRYING

_LEVELS = {RETRYING: logging.WARNING, RECOVERED: logging.INFO}


class LogReporter:
    """Writes one line for each report, with the traceback and the context beside it.

    ERROR, or WARNING for a failure that is retried, or INFO for one that is made up for.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._log = logger or logging.getLogger("headway.errors")

    def report(self, error: BaseException, context: Mapping[str, Any]) -> None:
        level = _LEVELS.get(str(context.get(OUTCOME)), logging.ERROR)
        if not self._log.isEnabledFor(level):
            return
        record = self._log.makeRecord(
            self._log.name,
            level,
            __file__,
            0,
            "Error reported: %s",
            (shown(hidden(f"{type(error).__name__}: {words(error)}")),),
            (type(error), error, error.__traceback__),
            # In one field, because names such as `message` belong to the log record itself.
            extra={"error_type": type(error).__name__, "context": without_secrets(context)},
        )
        # Any formatter takes it as it is, and passwords are not in it.
        record.exc_text = trace(error).rstrip("\n")
        self._log.handle(record)
