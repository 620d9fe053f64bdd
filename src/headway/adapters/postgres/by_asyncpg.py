"""Transactions on asyncpg connections."""

from typing import Any

from headway.adapters.postgres.operations import (
    CANNOT_END_SESSIONS,
    CLAIM,
    END_SESSION,
    HOLDER,
    MADE_MEANWHILE,
    OPERATIONS_TABLE,
    check_isolation,
)
from headway.core.errors import TransactionEndedError, TransactionRolledBackError
from headway.ports.transactions import Claim, Plan

_CLAIM = CLAIM.format("$1", "$2")
_HOLDER = HOLDER.format("$1", "$2")
_END_SESSION = END_SESSION.format("$1", "$2")
_CLOSE_SECONDS = 2.0


class AsyncpgDriver:
    """Uses asyncpg's own Transaction, so that a body may nest `connection.transaction()`."""

    def prepare(self, connection: Any) -> Plan[None]:
        made = False
        while not made:
            try:
                yield connection.execute(OPERATIONS_TABLE)
                made = True
            except Exception as error:  # told apart by its SQLSTATE: no driver is imported
                if getattr(error, "sqlstate", None) not in MADE_MEANWHILE:
                    raise

    def session(self, connection: Any) -> int:
        return int(connection.get_server_pid())

    def fence(self, connection: Any, session: int) -> Plan[bool]:
        try:
            gone = yield connection.fetchval(_END_SESSION, session, self.session(connection))
        except Exception as error:  # told apart by its SQLSTATE: no driver is imported
            if getattr(error, "sqlstate", None) not in CANNOT_END_SESSIONS:
                raise
            return False
        return bool(gone)

    def begin(self, connection: Any, isolation: str | None) -> Plan[None]:
        check_isolation(isolation)
        yield connection.transaction(isolation=isolation).start()

    def claim(self, connection: Any, operation_id: str, token: str) -> Plan[Claim]:
        ours = None
        while ours is None:  # a row that was in the way may be gone by the time it is read
            if (yield connection.fetchval(_CLAIM, operation_id, token)) is not None:
                return Claim.WRITTEN
            ours = yield connection.fetchval(_HOLDER, operation_id, token)
        return Claim.OURS if ours else Claim.OTHERS

    def commit(self, connection: Any) -> Plan[None]:
        if not connection.is_in_transaction():
            raise TransactionEndedError
        # Transaction.commit() would not tell that the answer was a rollback.
        if (yield connection.execute("COMMIT")) != "COMMIT":
            raise TransactionRolledBackError

    def close(self, connection: Any, *, clean: bool) -> Plan[None]:
        if clean:
            try:
                yield connection.close(timeout=_CLOSE_SECONDS)
            except (OSError, TimeoutError):
                clean = False
        if not clean:
            connection.terminate()  # a goodbye on a broken connection could wait for ever
