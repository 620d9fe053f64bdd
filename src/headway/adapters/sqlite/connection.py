"""Connections to the one file, all opened in the same way."""

import sqlite3
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from headway.core.errors import ConfigurationError

SYNCHRONOUS = ("full", "normal", "off", "extra")
OLDEST = (3, 32, 0)
"""The first SQLite that takes as many values in one statement as we give it."""

_STATEMENTS_KEPT = 256
_PAGES_BEFORE_CHECKPOINT = 4_000
_LONGEST_LOG = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Which file it is and how carefully it is written."""

    path: Path
    synchronous: str = "full"
    """full: what was committed outlives a power cut. normal: it outlives a crash of the process."""
    busy: timedelta = timedelta(seconds=30)
    """How long a connection waits for a lock that another process holds."""

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

    def refusal(self, why: str) -> ConfigurationError:
        """Say why this file cannot be used."""
        return ConfigurationError(f"the database file {str(self.path)!r} {why}")


def connect(location: Location, *, synchronous: str | None = None) -> sqlite3.Connection:
    """Open the file in WAL mode; transactions begin and end only where we say so."""
    if not location.path.absolute().parent.is_dir():
        raise location.refusal(
            "lies in a folder that does not exist: make the folder, or name another"
        )
    try:
        connection = sqlite3.connect(
            location.path,
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
        _set_up(connection, synchronous or location.synchronous)
    except sqlite3.Error as error:
        connection.close()
        raise _explained(location, error) from error
    return connection


def _set_up(connection: sqlite3.Connection, synchronous: str) -> None:
    mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
    if mode != "wal":
        raise sqlite3.OperationalError(f"its file system gives journal mode {mode} instead of wal")
    connection.execute(f"pragma synchronous = {synchronous}")
    connection.execute(f"pragma wal_autocheckpoint = {_PAGES_BEFORE_CHECKPOINT}")
    connection.execute(f"pragma journal_size_limit = {_LONGEST_LOG}")
    connection.execute("pragma temp_store = memory")


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
