"""Transactions on sqlite3 connections."""

from typing import Any

from headway.core.errors import ConfigurationError, TransactionEndedError
from headway.ports.transactions import Claim, Plan

OPERATIONS_TABLE = """
create table if not exists headway_operations (
    operation_id text primary key,
    token text not null,
    stored_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) without rowid
"""

_MODES = ("deferred", "immediate", "exclusive")
_CLAIM = """
insert into headway_operations (operation_id, token) values (?, ?)
on conflict (operation_id) do nothing
"""
_HOLDER = "select token = ? from headway_operations where operation_id = ?"


class SqliteDriver:
    """Says BEGIN and COMMIT itself; the claim takes SQLite's one write lock.

    `isolation` is SQLite's: deferred (the default), immediate or exclusive.
    """

    def prepare(self, connection: Any) -> Plan[None]:
        yield connection.execute(OPERATIONS_TABLE)
        yield connection.commit()

    def session(self, connection: Any) -> None:  # noqa: ARG002 (the port's shape)
        return None

    def fence(self, connection: Any, session: None) -> Plan[bool]:  # noqa: ARG002 (see below)
        # A file has no far side: what did not commit was rolled back with its connection.
        yield
        return True

    def begin(self, connection: Any, isolation: str | None) -> Plan[None]:
        mode = isolation or "deferred"
        if mode not in _MODES:
            raise ConfigurationError(
                f"isolation={isolation!r} is not accepted on SQLite: use {', '.join(_MODES)}; "
                "its transactions are serializable anyway"
            )
        if getattr(connection, "autocommit", None) is False:  # since Python 3.12
            connection.autocommit = True
        connection.isolation_level = None  # no BEGIN behind our back
        yield connection.execute(f"BEGIN {mode}")

    def claim(self, connection: Any, operation_id: str, token: str) -> Plan[Claim]:
        cursor = connection.cursor()
        cursor.row_factory = None  # the connection's own may give anything
        yield cursor.execute(_CLAIM, (operation_id, token))
        if cursor.rowcount:
            return Claim.WRITTEN
        # The claim holds the write lock, so the row that was in the way is still there.
        row = yield cursor.execute(_HOLDER, (token, operation_id)).fetchone()
        return Claim.OURS if row[0] else Claim.OTHERS

    def commit(self, connection: Any) -> Plan[None]:
        if not connection.in_transaction:
            raise TransactionEndedError
        yield connection.execute("COMMIT")

    def close(self, connection: Any, *, clean: bool) -> Plan[None]:  # noqa: ARG002 (never waits)
        yield connection.close()
