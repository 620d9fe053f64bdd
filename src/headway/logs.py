"""Log lines of Headway in the format of your log: JSON for machines, short lines for a terminal."""

from headway.adapters.logs.formats import JsonFormatter, TerminalFormatter
from headway.adapters.logs.observer import LogObserver
from headway.adapters.logs.sequences import SequenceLog
from headway.adapters.logs.writing import write_lines
from headway.core.showing import described, shown

__all__ = [
    "JsonFormatter",
    "LogObserver",
    "SequenceLog",
    "TerminalFormatter",
    "described",
    "shown",
    "write_lines",
]
