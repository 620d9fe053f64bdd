"""Our own transactions and savepoints, in words that nobody else uses.

The guard refuses a body that would end them, when SQLite reads its statement. A statement of the
same text as one of ours would come out of the cache, already read; so ours have a mark.
"""

import sqlite3

OURS = "headway"
"""How the names of our savepoints begin."""

BEGIN = "begin immediate /* headway */"
COMMIT = "commit /* headway */"


def hold(connection: sqlite3.Connection, name: str) -> None:
    connection.execute(f"savepoint {OURS}_{name} /* headway */")


def undo(connection: sqlite3.Connection, name: str) -> None:
    """Go back to a savepoint; it stays, until it is released."""
    connection.execute(f"rollback to {OURS}_{name} /* headway */")


def release(connection: sqlite3.Connection, name: str) -> None:
    connection.execute(f"release {OURS}_{name} /* headway */")
