"""What happens when a command cannot go on: one line that says why, and no traceback of ours."""

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headway.apps.cli.codes import CANNOT_GO_ON, UNAVAILABLE
from headway.apps.cli.output import OutputError, checked_output, end
from headway.core.errors import ConfigurationError
from headway.core.extras import cure
from headway.core.secrets import hidden

_EXTRA_OF = {
    **dict.fromkeys(("asyncpg", "fastapi", "httpx", "prometheus_client", "uvicorn"), "ledger"),
    **dict.fromkeys(("jinja2", "starlette"), "ui"),
}
_SQLITE_UNAVAILABLE = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED),
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
)


class UnavailableError(Exception):
    """A bus or a store does not answer; the message names its setting."""


@contextmanager
def said_in_one_line() -> Iterator[None]:
    """Say what a person can mend in one line, and end the process; the rest is raised."""
    try:
        with checked_output():
            yield
    except OutputError as error:
        end(error)
    except ConfigurationError as error:
        # Of a module that cannot be imported, the note is its own traceback.
        _refuse(str(error), before=getattr(error, "__notes__", ()))
    except (UnavailableError, ConnectionError) as error:
        _refuse(hidden(str(error)), UNAVAILABLE)
    except sqlite3.Error as error:
        which = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
        code = UNAVAILABLE if primary in _SQLITE_UNAVAILABLE else CANNOT_GO_ON
        _refuse(f"the database cannot be used: {error}{which}", code)
    except ModuleNotFoundError as missing:
        if missing.name not in _EXTRA_OF:
            raise
        _refuse(f"this command needs {missing.name}: {cure(_EXTRA_OF[missing.name])}")


def _refuse(why: str, code: int = CANNOT_GO_ON, before: Sequence[str] = ()) -> None:
    try:
        sys.stderr.write("".join(f"{line}\n" for line in (*before, f"headway: {why}")))
    except OutputError as error:
        end(error)
    sys.exit(code)
