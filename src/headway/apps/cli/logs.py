"""How the commands that run for long write their log."""

import sys
from enum import StrEnum

from headway.adapters.logs.formats import JsonFormatter, TerminalFormatter
from headway.adapters.logs.writing import write_lines
from headway.assembly.settings import (
    LOG_LEVEL,
    environment,
    hand_down,
    log_level,
    read_secret_fields,
)


class LogFormat(StrEnum):
    """The shape of a log line."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """From which level on lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


def use_level(level: LogLevel | None) -> None:
    """Have what was given as --log-level go before HEADWAY_LOG_LEVEL, here and in workers."""
    if level is not None:
        hand_down({LOG_LEVEL: level})


def write_logs(shape: LogFormat) -> None:
    """Write short lines for a person at a terminal, JSON for anything else that reads them."""
    settings = environment()
    read_secret_fields(settings)
    text = shape is LogFormat.TEXT or (shape is LogFormat.AUTO and sys.stderr.isatty())
    write_lines(TerminalFormatter() if text else JsonFormatter(), log_level(settings))
