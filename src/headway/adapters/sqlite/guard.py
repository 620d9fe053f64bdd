"""Bodies of the user's own inside our commit: they may write, and may not end it.

A commit holds the units of many events. A body that said COMMIT would store half a unit, and one
that said ROLLBACK would undo the units before it; so SQLite is told to refuse both while a body
runs.
"""

import sqlite3

from headway.adapters.sqlite.savepoints import OURS
from headway.core.errors import TransactionEndedError
from headway.ports.commit import TransactionBody


class UndoneError(Exception):
    """The whole transaction is gone, though nobody said ROLLBACK: all of it has to run again."""


class Guard:
    """Watches over one connection."""

    def __init__(self) -> None:
        self._in_body = False
        self._denied = False

    def watch(self, connection: sqlite3.Connection) -> None:
        connection.set_authorizer(self._allows)

    def run(self, body: TransactionBody, connection: sqlite3.Connection) -> None:
        """Run a body.

        Raises:
            UndoneError: It rolled everything back, by a conflict clause or by closing.
            Exception: Whatever the body raised.
        """
        self._in_body, self._denied = True, False
        try:
            body(connection)
        except Exception as error:
            if not in_transaction(connection):
                raise UndoneError(str(error)) from error
            if self._denied:
                raise _not_yours() from error
            raise
        finally:
            self._in_body = False
            connection.row_factory = None
            connection.text_factory = str
        if not in_transaction(connection):
            raise UndoneError("a body rolled the transaction back")
        if self._denied:  # and it swallowed the error: it believes in an end that did not happen
            raise _not_yours()

    def _allows(self, action: int, _: str | None, name: str | None, *__: str | None) -> int:
        if not self._in_body:
            return sqlite3.SQLITE_OK
        ours = action == sqlite3.SQLITE_SAVEPOINT and (name or "").lower().startswith(OURS)
        if action == sqlite3.SQLITE_TRANSACTION or ours:
            self._denied = True
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


def in_transaction(connection: sqlite3.Connection) -> bool:
    """Say whether a transaction is open; a connection that was closed has none."""
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:
        return False


def _not_yours() -> TransactionEndedError:
    return TransactionEndedError(
        "the body tried to end the transaction that it shares with others (COMMIT, ROLLBACK, or "
        "something that implies one, such as executescript): leave that to Headway, and use "
        "savepoints with names of your own"
    )
