"""Where log lines go: to the standard error, without what libraries say of themselves."""

import logging
from collections.abc import Mapping
from typing import Any, TextIO

from headway.core.traces import trace

_QUIET = {
    # Of lost connections it writes tracebacks; Headway says each in one line.
    "pika": logging.CRITICAL,
    # One line for each request, with its whole address, which may hold a key.
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    # Of their own workings, at DEBUG, they write more than everybody else.
    **dict.fromkeys(("aiormq", "amqp", "asyncio", "asyncpg", "kombu", "pymongo"), logging.INFO),
}


class _Handler(logging.StreamHandler[TextIO]):
    """Writes the lines of a process whose log is Headway's to set up."""


def write_lines(formatter: logging.Formatter, level: str = "INFO") -> None:
    """Write all lines from a level on in this shape, and no others."""
    handler = _Handler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(least)


def change_level(level: str) -> None:
    """Write lines from another level on, and say so; a log that others set up stays as it is."""
    root = logging.getLogger()
    before = logging.getLevelName(root.level)
    if before != level and any(isinstance(each, _Handler) for each in root.handlers):
        root.setLevel(min(root.level, logging.INFO))  # so that the line is seen
        logging.getLogger("headway").info("Log level changed: %s -> %s", before, level)
        root.setLevel(level)


def log_traceback(
    log: logging.Logger,
    level: int,
    text: str,
    values: tuple[Any, ...],
    *,
    error: BaseException,
    fields: Mapping[str, Any],
) -> None:
    """Log an error with its traceback, already without secrets: any formatter takes it so."""
    told = (type(error), error, error.__traceback__)
    record = log.makeRecord(log.name, level, __file__, 0, text, values, told, extra=dict(fields))
    record.exc_text = trace(error).rstrip("\n")
    log.handle(record)
