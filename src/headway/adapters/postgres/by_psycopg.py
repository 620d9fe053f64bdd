"""Transactions on psycopg connections, sync and async: their methods have the same names."""

from typing import Any

from headway.adapters.postgres.operations import (
    CANNOT_END_SESSIONS,
    CLAIM,
    END_SESSION,
    HOLDER,
    ISOLATION_LEVELS,
    MADE_MEANWHILE,
    OPERATIONS_TABLE,
)
from headway.core.errors import TransactionRolledBackError
from headway.ports.transactions import Plan

_CLAIM = CLAIM.format("%s", "%s")
_HOLDER = HOLDER.format("%s")
_END_SESSION = END_SESSION.format("%s")


class PsycopgDriver:
    """Says BEGIN and COMMIT itself, on a connection in autocommit mode.

    A body may still nest `connection.transaction()`, which then makes a savepoint.
    """

    def prepare(self, connection: Any) -> Plan[None]:
        yield connection.set_autocommit(True)
        try:
            yield connection.execute(OPERATIONS_TABLE)
        except Exception as error:
            if getattr(error, "sqlstate", None) not in MADE_MEANWHILE:
                raise

    def session(self, connection: Any) -> int:
        return int(connection.info.backend_pid)

    def fence(self, connection: Any, session: int) -> Plan[bool]:
        yield connection.set_autocommit(True)
        try:
            cursor = yield connection.execute(_END_SESSION, (session,))
        except Exception as error:
            if getattr(error, "sqlstate", None) not in CANNOT_END_SESSIONS:
                raise
            return False
        return bool((yield cursor.fetchone())[0])

    def begin(self, connection: Any, isolation: str | None) -> Plan[None]:
        yield connection.set_autocommit(True)
        level = f" ISOLATION LEVEL {ISOLATION_LEVELS[isolation]}" if isolation else ""
        yield connection.execute(f"BEGIN{level}")

    def claim(self, connection: Any, operation_id: str, token: str) -> Plan[str | None]:
        row = None
        while row is None:  # a row that was in the way may be gone by the time it is read
            cursor = yield connection.execute(_CLAIM, (operation_id, token))
            if (yield cursor.fetchone()) is not None:
                return None
            cursor = yield connection.execute(_HOLDER, (operation_id,))
            row = yield cursor.fetchone()
        return str(row[0])

    def commit(self, connection: Any) -> Plan[None]:
        cursor = yield connection.execute("COMMIT")
        if cursor.statusmessage != "COMMIT":
            raise TransactionRolledBackError

    def close(self, connection: Any, *, clean: bool) -> Plan[None]:  # noqa: ARG002 (never waits)
        yield connection.close()
