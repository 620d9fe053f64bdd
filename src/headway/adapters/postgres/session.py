"""A connection that can be lent to a callback: it may write, and may not end the transaction.

SQL text is never read. `ARM` queues a deferred trigger that refuses COMMIT until `ALLOW` has run in
the same transaction. `READ_ONLY` applies to every other transaction that the callback begins after
a ROLLBACK. The check in `Session` catches single statements outside of the transaction before they
are sent, also behind a pooler, where no setting of the session can be used.
"""

import inspect
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg

from headway.core.errors import TransactionEndedError
from headway.core.origin import place, users_frame

_SAVEPOINT = "headway_unit"
_OURS = "pg_catalog.txid_current_if_assigned()::text"
ARM = f"""
insert into headway_guard default values; savepoint {_SAVEPOINT};
select pg_catalog.set_config('headway.unit', {_OURS}, true)
"""
"""Refuse COMMIT from here on. ROLLBACK TO our savepoint would take the setting back."""

DURABLE = """
select pg_catalog.set_config('synchronous_commit', 'on', true)
where pg_catalog.current_setting('synchronous_commit') in ('off', 'local')
"""
"""A worker acknowledges an event after COMMIT, so the record must be on disk by then, whatever the
defaults of the role, the database and the server are. Stronger settings stay."""

ALLOW = f"""
release savepoint {_SAVEPOINT}; {DURABLE};
select pg_catalog.set_config('headway.commit', {_OURS}, true)
where pg_catalog.current_setting('headway.unit', true) = {_OURS}
"""
"""Allow COMMIT, in the transaction of ARM only. A callback may have changed the search path, the
role and any setting: the statements need neither tables nor rights."""
ALLOWED = "SELECT 1"

READ_ONLY = "set default_transaction_read_only = on"
READ_WRITE = "set transaction read write"
ENDED = frozenset({"2D000", "25006"})
"""invalid_transaction_termination, which is also the server's answer to COMMIT in a procedure; and
read_only_sql_transaction, its answer to writes in a transaction other than ours."""

_ENDED = (
    "the body ended the transaction that it shares with its event (COMMIT or ROLLBACK), or tried "
    "to: leave that to Headway, and use `async with connection.transaction()`, which makes "
    "savepoints"
)
_CLOSED = "the body tried to {} the connection that it was lent: leave that to Headway"

CLEAN = """
close all; set session authorization default; reset all; unlisten *;
select pg_advisory_unlock_all(); discard temp; discard sequences
"""
"""Undoes what a body may have left behind in its session."""


class Session(asyncpg.Connection):  # type: ignore[misc] # (asyncpg brings no types)
    """A connection of the pool."""

    __slots__ = ("changed", "denied", "lent", "statements")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lent = False
        self.changed = False
        """A body taught it other codecs: it is not used again."""
        self.denied: str | None = None
        """Why the body was told no, even if it did not listen."""
        self.statements: list[tuple[Coroutine[Any, Any, Any], str]] = []
        """Statements of the body that have not started, and their lines."""

    def get_reset_query(self) -> str:
        # Nothing of ours outlives its transaction; what bodies leave is undone by CLEAN.
        return ""

    def lend(self) -> "Session":
        """Watch over what is said from now on, until `lent` is False; give the session itself."""
        self.denied, self.lent = None, True
        return self

    def take_back(self) -> None:
        """End the loan."""
        self.lent = False
        for statement, _ in self.statements:
            if _has_not_started(statement):
                statement.close()
        self.statements.clear()

    def not_awaited(self) -> str | None:
        """Give the line of the first statement of the body that was never awaited."""
        return next((at for each, at in self.statements if _has_not_started(each)), None)

    def note(self, statement: Any) -> None:
        """Keep a statement of the body in mind until it has started."""
        if self.lent and inspect.iscoroutine(statement):
            frame = users_frame(sys._getframe(1))  # noqa: SLF001 (the public way reads the source)
            at = "an unknown line" if frame is None else place(frame.f_code, frame.f_lineno)
            waiting = [each for each in self.statements if _has_not_started(each[0])]
            self.statements = [*waiting, (statement, at)]

    def check(self) -> None:
        """Refuse a statement that would run outside of the transaction, and be stored at once."""
        if self.lent and not self.is_in_transaction():
            self.deny(_ENDED)

    def deny(self, why: str) -> None:
        self.denied = why
        raise TransactionEndedError(why)


def ended() -> TransactionEndedError:
    return TransactionEndedError(_ENDED)


def _checking(name: str) -> Callable[..., Any]:
    method = getattr(asyncpg.Connection, name)

    def checks(self: Session, *args: Any, **kwargs: Any) -> Any:
        self.check()
        statement = method(self, *args, **kwargs)
        self.note(statement)
        return statement

    return checks


def _has_not_started(statement: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(statement) == inspect.CORO_CREATED


def _denied(name: str) -> Callable[..., Any]:
    method = getattr(asyncpg.Connection, name)

    def denies(self: Session, *args: Any, **kwargs: Any) -> Any:
        if self.lent:
            self.deny(_CLOSED.format(name))
        return method(self, *args, **kwargs)

    return denies


def _changing(name: str) -> Callable[..., Any]:
    method = getattr(asyncpg.Connection, name)

    def changes(self: Session, *args: Any, **kwargs: Any) -> Any:
        self.changed = True
        return method(self, *args, **kwargs)

    return changes


for _names, _made in (
    (
        (
            *("cursor", "execute", "executemany", "fetch", "fetchrow", "fetchval", "prepare"),
            *("copy_from_query", "copy_from_table", "copy_records_to_table", "copy_to_table"),
        ),
        _checking,
    ),
    (("close", "reset", "terminate"), _denied),
    (("reset_type_codec", "set_builtin_type_codec", "set_type_codec"), _changing),
):
    for _name in _names:
        setattr(Session, _name, _made(_name))
if hasattr(asyncpg.Connection, "fetchmany"):  # since asyncpg 0.30
    Session.fetchmany = _checking("fetchmany")
