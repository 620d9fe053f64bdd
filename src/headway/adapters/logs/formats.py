"""Two shapes of a log line: JSON for machines, short lines for a terminal.

Neither tells passwords, whoever wrote the line.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from headway.core.secrets import hidden, without_secrets
from headway.core.traces import trace

PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""What every record has; `logging` refuses a field of such a name."""
_FOR_COLORS = "color_message"
"""Of uvicorn: the message once more, with what a terminal obeys in it."""


class _Formatter(logging.Formatter):
    def formatException(self, ei: Any) -> str:  # noqa: N802 (the library's name)
        return trace(ei[1]).rstrip("\n") if ei[1] is not None else super().formatException(ei)


class JsonFormatter(_Formatter):
    """One JSON object for each line, with every extra field of the record."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": hidden(record.getMessage()),
        }
        line.update(without_secrets(extras(record)))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=_plain, ensure_ascii=False)


class TerminalFormatter(_Formatter):
    """Time, level, message, then the extra fields that are set."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        told = without_secrets(extras(record)).items()
        fields = " ".join(f"{key}={value}" for key, value in told)
        said = hidden(record.getMessage() + f"  {fields}" * bool(fields))
        line = f"{when} {record.levelname:<7} {said}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _plain(value: object) -> str:
    return hidden(str(value))


def extras(record: logging.LogRecord) -> dict[str, object]:
    """Give the fields that a call added to the record."""
    return {
        key: value
        for key, value in record.__dict__.items()
        if key not in PLAIN and key != _FOR_COLORS and value is not None
    }
