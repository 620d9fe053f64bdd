"""Connections to the one file, all opened in the same way.

A person or a backup tool may remove the file or its log, or put another file in its place, while it
is in use. SQLite goes on with the old one, which no other process can find any more. So a
connection remembers its files, and before each use and after each commit a process asks whether
they are still there, which costs a call of the system; for the log a few times a second is enough,
because SQLite writes what is in it to the file when a process ends. If a file is gone, the process
works on none of them any more.
"""

import os
import sqlite3
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from headway.adapters.sqlite.timeline import Timeline
from headway.core.errors import ConfigurationError, StorageLostError

SYNCHRONOUS = ("full", "normal", "off", "extra")
OLDEST = (3, 32, 0)
"""The first SQLite that takes as many values in one statement as we give it."""

_STATEMENTS_KEPT = 256
_LOOK_AGAIN = 0.01
_PAGES_BEFORE_CHECKPOINT = 4_000
_LONGEST_LOG = 64 * 2**20


IS_UTF8 = "headway_is_utf8"
"""A function of SQL, of bytes: other programs write texts that Python cannot read."""

_LOG = "-wal"
_INDEX = "-shm"
_MARK = "-wal-of"
_LOG_HEADER = 32
_CHECK_LOG_EVERY = 0.25

FileId = tuple[int, int]
"""A file, whatever it is called."""


@dataclass(slots=True)
class _Known:
    """What all connections of an engine have found out about the file."""

    opened: bool = False
    """It was there: from now on it is not made anew."""
    open: "set[Connection]" = field(default_factory=set)
    """While one is open, the log belongs to it; when all are closed, SQLite removes it."""
    closing: threading.Lock = field(default_factory=threading.Lock)
    """Held to close a connection, so that no other thread misses a log that SQLite removed."""
    fits: bool = False
    """Its tables were of our version: this process goes on if a newer one upgrades them."""
    log_checked: float = 0.0
    lost: str = ""
    """What became of it: from now on no connection is opened or used."""


class Connection(sqlite3.Connection):
    """Knows on which file it was opened, and which log and index of the log belong to that."""

    file: FileId | None = None
    log: FileId | None = None
    index: FileId | None = None
    known: _Known | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.create_function(IS_UTF8, 1, _is_utf8, deterministic=True)

    def close(self) -> None:
        if self.known is None:
            super().close()
            return
        with self.known.closing:
            super().close()
            self.known.open.discard(self)


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

    def check(self, connection: Connection, *, at_once: bool = False) -> None:
        """See that the files of a connection are still where they were.

        Args:
            connection: The connection.
            at_once: Look at the log too, even if that was done just before.

        Raises:
            StorageLostError: They are not, or were not at an earlier check.
        """
        if self.known.lost:
            raise self.loss(self.known.lost)
        file = _identity(self.path)
        if file != connection.file:
            self._mark_log(connection)
            if file is None:
                raise self.removed()
            raise self.loss(
                f"The database file {str(self.path)!r} was replaced by another file while this "
                "process used it. The process stops, and commits nothing to the new file. Stop all "
                "Headway processes, move the files -wal and -shm of the old file away if they "
                "are still beside the new one, and start them again."
            )
        now = time.monotonic()
        if not at_once and now - self.known.log_checked < _CHECK_LOG_EVERY:
            return
        self.known.log_checked = now
        for its, suffix in ((connection.log, _LOG), (connection.index, _INDEX)):
            if its is not None and its != _identity(self.beside(suffix)):
                raise self.loss(
                    f"The file {str(self.beside(suffix))!r} was removed or replaced while this "
                    "process used the database beside it. The process stops. The latest commits "
                    "may be lost: stop all Headway processes, since the last one that ends writes "
                    "what it still has to the database, start them again, and run headway verify."
                )

    def removed(self) -> StorageLostError:
        return self.loss(
            f"The database file {str(self.path)!r} was removed while this process used it. The "
            "process stops, and makes no new file. Stop all Headway processes, bring the file "
            "back with its -wal and -shm (or do without what was in it), and start them again."
        )

    def loss(self, what: str) -> StorageLostError:
        self.known.lost = what
        return StorageLostError(what)

    def refuse_stale_log(self) -> None:
        """Refuse a file that lies beside the log of another file, whose place it has taken.

        SQLite would take what is in there for changes of this file, and damage it.
        """
        mark = self.beside(_MARK)
        with suppress(FileNotFoundError):
            marked = mark.read_bytes()
            if marked[:_LOG_HEADER] != self._log_header():
                mark.unlink()  # that log is gone
            elif marked[_LOG_HEADER:] != _named(_identity(self.path)):
                raise self.refusal(
                    "was replaced while it was in use, and the log of the old one is still beside "
                    "it: stop all workers, move the files -wal and -shm to where the old one is, "
                    "and start them again. If this is a copy of the old one, to which they "
                    f"belong, remove {str(mark)!r} instead"
                )

    def _mark_log(self, connection: Connection) -> None:
        """Leave word for processes that start later: to which file the log belongs."""
        header = self._log_header()
        if header and _identity(self.beside(_LOG)) == connection.log:
            with suppress(OSError):
                self.beside(_MARK).write_bytes(header + _named(connection.file))

    def _log_header(self) -> bytes:
        with suppress(OSError), self.beside(_LOG).open("rb") as log:
            return log.read(_LOG_HEADER)
        return b""

    def refusal(self, why: str) -> ConfigurationError:
        """Say why this file cannot be used."""
        return ConfigurationError(f"the database file {str(self.path)!r} {why}")


def connect(location: Location, *, synchronous: str | None = None) -> Connection:
    """Open the file in WAL mode; transactions begin and end only where we say so."""
    known, path = location.known, location.path.absolute()
    if known.lost:
        raise location.loss(known.lost)
    if known.opened and not path.exists():
        raise location.removed()
    with known.closing:
        for other in tuple(known.open):
            location.check(other, at_once=True)  # a new log must not take the place of theirs
    location.refuse_stale_log()
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
    connection.log = _identity(location.beside(_LOG))
    connection.index = _identity(location.beside(_INDEX))
    connection.known = known
    known.open.add(connection)
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
    # On macOS an ordinary sync leaves data in the cache of the disk. Elsewhere these do nothing.
    connection.execute("pragma fullfsync = on")
    connection.execute("pragma checkpoint_fullfsync = on")
    connection.execute(f"pragma wal_autocheckpoint = {_PAGES_BEFORE_CHECKPOINT}")
    connection.execute(f"pragma journal_size_limit = {_LONGEST_LOG}")
    connection.execute("pragma temp_store = memory")
    connection.execute("pragma schema_version").fetchone()  # reads, so that the log is there


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _identity(path: Path) -> FileId | None:
    try:
        there = os.stat(path)  # noqa: PTH116 (asked before each use, and Path needs twice as long)
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _named(file: FileId | None) -> bytes:
    return repr(file).encode()


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
