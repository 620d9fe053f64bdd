"""How the commands that run for long write their log."""

import sys
from enum import StrEnum

from headway.adapters.logs.formats import JsonFormatter, TerminalFormatter
from headway.adapters.logs.writing import write_lines
from headway.assembly.settings import environment, read_secret_fields


class LogFormat(StrEnum):
    """The shape of a log line."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


def write_logs(shape: LogFormat) -> None:
    """Write short lines for a person at a terminal, JSON for anything else that reads them."""
    read_secret_fields(environment())
    text = shape is LogFormat.TEXT or (shape is LogFormat.AUTO and sys.stderr.isatty())
    write_lines(TerminalFormatter() if text else JsonFormatter())
