"""The record of what operators change, for whoever keeps the output of commands."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headway.adapters.logs.formats import JsonFormatter


@contextmanager
def record_of_changes() -> Iterator[None]:
    """Write a line of JSON for each change, unless a person sits at the terminal and sees it."""
    if sys.stderr.isatty():
        yield
        return
    log = logging.getLogger("headway.operator")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
