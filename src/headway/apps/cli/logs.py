"""How the commands that run for long write their log."""

import logging
import sys
from enum import StrEnum

from headway.adapters.logs.formats import JsonFormatter, TerminalFormatter


class LogFormat(StrEnum):
    """The shape of a log line."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


def write_logs(shape: LogFormat) -> None:
    """Write short lines for a person at a terminal, JSON for anything else that reads them."""
    text = shape is LogFormat.TEXT or (shape is LogFormat.AUTO and sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(TerminalFormatter() if text else JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # Of lost connections it writes tracebacks; Headway says each in one line.
    logging.getLogger("pika").setLevel(logging.CRITICAL)
