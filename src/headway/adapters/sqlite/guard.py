"""Bodies of the user's own inside our commit: they may write, and may not end it.

A commit holds the units of many events. A body that said COMMIT would store half a unit, and one
that said ROLLBACK would undo the units before it; so SQLite is told to refuse both while a body
runs, and with them all that would outlive the body and harm others: settings of the connection,
other files, and changes of our own tables.
"""

import sqlite3
import sys

from headway.adapters.sqlite.savepoints import OURS
from headway.core.callback import drive
from headway.core.catalogue import names_engine
from headway.core.errors import TransactionEndedError
from headway.ports.commit import TransactionBody

_TABLES = f"{OURS}_"
"""How the names of our tables begin."""

_READING = frozenset(
    {
        "foreign_key_check",
        "foreign_key_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "integrity_check",
        "quick_check",
        "table_info",
        "table_list",
        "table_xinfo",
    }
)
"""Pragmas whose argument only says what they are to tell."""
_OTHER_FILES = frozenset({sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH})
_CHANGES = frozenset(
    {
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        *(
            getattr(sqlite3, f"SQLITE_{verb}_{noun}")
            for verb in ("CREATE", "DROP")
            for noun in (
                *("INDEX", "TABLE", "TRIGGER", "VIEW", "VTABLE"),
                *("TEMP_INDEX", "TEMP_TABLE", "TEMP_TRIGGER", "TEMP_VIEW"),
            )
        ),
    }
)
_LIMITS = tuple(
    getattr(sqlite3, name) for name in sorted(dir(sqlite3)) if name.startswith("SQLITE_LIMIT_")
)
_PROBE = f"savepoint {OURS}_probe"
_IN_THE_WAY = """
select 1 from temp.sqlite_master where name like 'headway!_%' escape '!'
                                    or tbl_name like 'headway!_%' escape '!'
"""

_ENDS = (
    "the body tried to end the transaction that it shares with others (COMMIT, ROLLBACK, or "
    "something that implies one, such as executescript): leave that to Headway, and use "
    "savepoints with names of your own"
)


class UndoneError(Exception):
    """The whole transaction is gone, though nobody said ROLLBACK: all of it has to run again."""


class Guard:
    """Watches over one connection."""

    def __init__(self) -> None:
        self._denied: str | None = None
        self._limits: tuple[int, ...] = ()

    def watch(self, connection: sqlite3.Connection) -> None:
        """Remember how a new connection is set up."""
        self._limits = tuple(connection.getlimit(each) for each in _LIMITS)

    def run(self, body: TransactionBody, connection: sqlite3.Connection) -> None:
        """Run a body.

        Raises:
            UndoneError: It rolled everything back, by a conflict clause or by closing; or it left
                the connection in a state in which nobody else can use it.
            sqlite3.Error: The file has no room, or cannot be written: SQLite undid everything.
            Exception: Whatever the body raised.
        """
        # Set each time: then SQLite reads again, with this in force, what it has read before.
        connection.set_authorizer(self._allows)
        self._denied = None
        raised: BaseException | None = None
        try:
            drive(body, body(connection))
        except BaseException as error:  # noqa: BLE001 (no body may end the thread of all)
            raised = error
        denied = self._denied
        self._restore(connection, raised)
        if denied is not None:  # even if it swallowed the error: it believes in what did not happen
            raise TransactionEndedError(denied) from raised
        if isinstance(raised, Exception):
            raise raised
        if raised is not None:
            raise RuntimeError(f"the body raised {type(raised).__name__}: {raised}") from raised

    def _restore(self, connection: sqlite3.Connection, raised: BaseException | None) -> None:
        """Undo what a body changed about the connection itself."""
        if not in_transaction(connection):
            if isinstance(raised, sqlite3.Error) and names_engine(raised):
                raise raised  # no fault of the body's: the disk is full, for one
            why = "the body rolled the transaction back, or closed its connection"
            raise UndoneError(why if raised is None else f"{why}: {raised}") from raised
        try:
            connection.set_progress_handler(None, 0)
            connection.set_trace_callback(None)
            for limit, value in zip(_LIMITS, self._limits, strict=True):
                connection.setlimit(limit, value)
            connection.row_factory = None
            connection.text_factory = str
            if sys.version_info >= (3, 12):
                connection.autocommit = sqlite3.LEGACY_TRANSACTION_CONTROL
            watched = self._is_watching(connection)
            connection.set_authorizer(None)
            in_the_way = connection.execute(_IN_THE_WAY).fetchone() is not None
        except sqlite3.Error as error:
            raise UndoneError(f"the body left its connection unusable: {error}") from error
        if not watched:
            raise UndoneError(
                "the body replaced the authorizer of the connection that it shares with others: "
                "use a connection of your own for that"
            )
        if in_the_way:
            raise UndoneError(
                f"the body put something temporary in the way of the tables {_TABLES}*: use names "
                "of your own"
            )

    def _is_watching(self, connection: sqlite3.Connection) -> bool:
        try:
            connection.execute(_PROBE)
        except sqlite3.DatabaseError:
            return self._denied is not None
        return False

    def _allows(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        denied = _why_not(action, (first or "").lower(), (second or "").lower())
        if denied is None:
            return sqlite3.SQLITE_OK
        self._denied = denied
        return sqlite3.SQLITE_DENY


def _why_not(action: int, first: str, second: str) -> str | None:
    """Say why a body may not do this, if it may not."""
    if action == sqlite3.SQLITE_TRANSACTION:
        return _ENDS
    if action == sqlite3.SQLITE_SAVEPOINT:
        return _ENDS if second.startswith(OURS) else None
    if action == sqlite3.SQLITE_PRAGMA and second and first not in _READING:
        return (
            f"the body tried to set pragma {first}, on a connection that it shares with others: "
            "set it when the file is made, or use a connection of your own"
        )
    if action in _OTHER_FILES:
        return (
            "the body tried to attach or detach a database, on a connection that it shares with "
            "others: use a connection of your own"
        )
    if action in _CHANGES and (first.startswith(_TABLES) or second.startswith(_TABLES)):
        name = first if first.startswith(_TABLES) else second
        return (
            f"the body tried to change {name}: what begins with {_TABLES} belongs to Headway, "
            "and may only be read; use tables of your own"
        )
    return None


def in_transaction(connection: sqlite3.Connection) -> bool:
    """Say whether a transaction is open; a connection that was closed has none."""
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:
        return False
