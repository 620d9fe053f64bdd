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
    check_isolation,
)
from headway.core.errors import (
    ConfigurationError,
    TransactionEndedError,
    TransactionRolledBackError,
)
from headway.ports.transactions import Claim, Plan

_CLAIM = CLAIM.format("%s", "%s")
_HOLDER = HOLDER.format("%(operation_id)s", "%(token)s")
_END_SESSION = END_SESSION.format("%(session)s", "%(own)s")


class PsycopgDriver:
    """Says BEGIN and COMMIT itself, on a connection in autocommit mode.

    A body may still nest `connection.transaction()`, which then makes a savepoint.
    """

    def prepare(self, connection: Any) -> Plan[None]:
        yield from _take_over(connection)
        made = False
        while not made:
            try:
                yield _cursor(connection).execute(OPERATIONS_TABLE)
                made = True
            except Exception as error:  # told apart by its SQLSTATE: no driver is imported
                if getattr(error, "sqlstate", None) not in MADE_MEANWHILE:
                    raise

    def session(self, connection: Any) -> int:
        return int(connection.info.backend_pid)

    def fence(self, connection: Any, session: int) -> Plan[bool]:
        yield from _take_over(connection)
        pids = {"session": session, "own": self.session(connection)}
        try:
            cursor = yield _cursor(connection).execute(_END_SESSION, pids)
        except Exception as error:  # told apart by its SQLSTATE: no driver is imported
            if getattr(error, "sqlstate", None) not in CANNOT_END_SESSIONS:
                raise
            return False
        return bool((yield cursor.fetchone())[0])

    def begin(self, connection: Any, isolation: str | None) -> Plan[None]:
        check_isolation(isolation)
        yield from _take_over(connection)
        level = f" ISOLATION LEVEL {ISOLATION_LEVELS[isolation]}" if isolation else ""
        yield _cursor(connection).execute(f"BEGIN{level}")

    def claim(self, connection: Any, operation_id: str, token: str) -> Plan[Claim]:
        row = None
        while row is None:  # a row that was in the way may be gone by the time it is read
            cursor = yield _cursor(connection).execute(_CLAIM, (operation_id, token))
            if (yield cursor.fetchone()) is not None:
                return Claim.WRITTEN
            ids = {"operation_id": operation_id, "token": token}
            cursor = yield _cursor(connection).execute(_HOLDER, ids)
            row = yield cursor.fetchone()
        return Claim.OURS if row[0] else Claim.OTHERS

    def commit(self, connection: Any) -> Plan[None]:
        if not connection.info.transaction_status:  # 0 is idle
            raise TransactionEndedError
        cursor = yield _cursor(connection).execute("COMMIT")
        if cursor.statusmessage != "COMMIT":
            raise TransactionRolledBackError

    def close(self, connection: Any, *, clean: bool) -> Plan[None]:  # noqa: ARG002 (never waits)
        yield connection.close()


def _take_over(connection: Any) -> Plan[None]:
    if connection.info.transaction_status:
        raise ConfigurationError(
            "connect gave a psycopg connection that is inside a transaction already: commit there, "
            "or connect with autocommit=True"
        )
    yield connection.set_autocommit(True)


def _cursor(connection: Any) -> Any:
    """Make a plain cursor: the connection's own factories may give anything."""
    import psycopg  # noqa: PLC0415 (imported by whoever made the connection, never by us first)

    kind = (
        psycopg.AsyncCursor if isinstance(connection, psycopg.AsyncConnection) else psycopg.Cursor
    )
    return kind(connection, row_factory=psycopg.rows.tuple_row)
