"""Connections to the one file, all opened in the same way.

Somebody may remove the file, or put another one in its place, while it is in use. SQLite goes on
with the old one, which nobody can find any more. So a connection remembers its file, and whoever
keeps one asks before each use whether the path still leads there, which costs a microsecond.
"""

import os
import sqlite3
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from headway.adapters.sqlite.timeline import Timeline
from headway.core.errors import ConfigurationError

SYNCHRONOUS = ("full", "normal", "off", "extra")
OLDEST = (3, 32, 0)
"""The first SQLite that takes as many values in one statement as we give it."""

_STATEMENTS_KEPT = 256
_LOOK_AGAIN = 0.01
_PAGES_BEFORE_CHECKPOINT = 4_000
_LONGEST_LOG = 64 * 2**20


_LOG_HEADER = 32

FileId = tuple[int, int]
"""A file, whatever it is called."""


@dataclass(slots=True)
class _Known:
    """What all connections of an engine have found out about the file."""

    opened: bool = False
    """It was there: from now on nobody makes it anew."""
    stale_log: bytes = b""
    """How the log begins that belongs to a file which was replaced."""


class Connection(sqlite3.Connection):
    """Knows on which file it was opened, and which log belongs to that."""

    file: FileId | None = None
    log: FileId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Which file it is and how carefully it is written."""

    path: Path
    synchronous: str = "full"
    """full: what was committed outlives a power cut. normal: it outlives a crash of the process."""
    busy: timedelta = timedelta(seconds=30)
    """How long a connection waits for a lock that another process holds."""
    time: Timeline | None = None
    """The file's own time, where times are kept in it."""
    known: _Known = field(default_factory=_Known, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.synchronous not in SYNCHRONOUS:
            raise ConfigurationError(
                f"synchronous={self.synchronous!r} is not accepted: use {', '.join(SYNCHRONOUS)}"
            )
        if sqlite3.sqlite_version_info < OLDEST:
            needed = ".".join(str(part) for part in OLDEST)
            raise ConfigurationError(
                f"this Python has SQLite {sqlite3.sqlite_version}, and {needed} is needed: "
                "use a Python that was built with a newer one"
            )

    def beside(self, suffix: str) -> Path:
        """Name a file of ours that lies beside the database."""
        return self.path.with_name(self.path.name + suffix)

    def holds(self, connection: Connection) -> bool:
        """Say whether the path still leads to the file of a connection.

        Raises:
            ConfigurationError: It leads nowhere.
        """
        there = _identity(self.path)
        if there is None:
            raise self.removed()
        if there == connection.file:
            return True
        if connection.log is not None and _identity(self.beside("-wal")) == connection.log:
            self.known.stale_log = self.log_header()
        return False

    def log_header(self) -> bytes:
        with suppress(OSError), self.beside("-wal").open("rb") as log:
            return log.read(_LOG_HEADER)
        return b""

    def removed(self) -> ConfigurationError:
        return self.refusal(
            "was removed while it was in use: bring it back, with the files -wal and -shm beside "
            "it if there were any, or start anew to begin with an empty one"
        )

    def refusal(self, why: str) -> ConfigurationError:
        """Say why this file cannot be used."""
        return ConfigurationError(f"the database file {str(self.path)!r} {why}")


def connect(location: Location, *, synchronous: str | None = None) -> Connection:
    """Open the file in WAL mode; transactions begin and end only where we say so."""
    known, path = location.known, location.path.absolute()
    if known.opened and not path.exists():
        raise location.removed()
    if known.stale_log and known.stale_log == location.log_header():
        # SQLite would take what is in there for changes of the new file, and damage it.
        raise location.refusal(
            "was replaced while it was in use, and the log of the old one is still beside it: "
            "stop all workers, move the files -wal and -shm to where the old one is, and start "
            "them again"
        )
    if not path.parent.is_dir():
        raise location.refusal(
            "lies in a folder that does not exist: make the folder, or name another"
        )
    try:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode={'rw' if known.opened else 'rwc'}",
            uri=True,
            factory=Connection,
            timeout=location.busy.total_seconds(),
            isolation_level=None,
            check_same_thread=False,  # each is used by one thread at a time, not always the same
            cached_statements=_STATEMENTS_KEPT,
        )
    except sqlite3.OperationalError as error:
        raise location.refusal(
            f"cannot be opened ({error}): give this user the right to read and write it"
        ) from error
    try:
        _set_up(connection, synchronous or location.synchronous, location.busy)
    except sqlite3.Error as error:
        connection.close()
        raise _explained(location, error) from error
    known.opened = True
    connection.file = _identity(path)
    connection.log = _identity(location.beside("-wal"))
    return connection


def _to_wal(connection: sqlite3.Connection, busy: timedelta) -> str:
    """Have the file keep a log; who else is just making that change is waited for.

    SQLite does not wait here by itself, whatever it was told.
    """
    until = time.monotonic() + busy.total_seconds()
    while True:
        try:
            return str(connection.execute("pragma journal_mode = wal").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            threading.Event().wait(_LOOK_AGAIN)


def _set_up(connection: sqlite3.Connection, synchronous: str, busy: timedelta) -> None:
    mode = _to_wal(connection, busy)
    if mode != "wal":
        raise sqlite3.OperationalError(f"its file system gives journal mode {mode} instead of wal")
    connection.execute(f"pragma synchronous = {synchronous}")
    connection.execute(f"pragma wal_autocheckpoint = {_PAGES_BEFORE_CHECKPOINT}")
    connection.execute(f"pragma journal_size_limit = {_LONGEST_LOG}")
    connection.execute("pragma temp_store = memory")
    connection.execute("pragma schema_version").fetchone()  # reads, so that the log is there


def _identity(path: Path) -> FileId | None:
    try:
        there = os.stat(path)  # noqa: PTH116 (asked before each use, and Path needs twice as long)
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _explained(location: Location, error: sqlite3.Error) -> Exception:
    name = getattr(error, "sqlite_errorname", "")
    if name in {"SQLITE_NOTADB", "SQLITE_CORRUPT"}:
        return location.refusal(
            f"is not a SQLite database, or is damaged ({error}): name another file, or bring this "
            "one back from a backup"
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return location.refusal(
            f"cannot be written ({error}): give this user the right to write it and its folder"
        )
    error.add_note(f"database file: {location.path}")
    return error
