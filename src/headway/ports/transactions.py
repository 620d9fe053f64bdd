"""One driver's way of running a transaction, for sync and async connections alike."""

from collections.abc import Generator
from enum import Enum, auto
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

Plan = Generator[Any, Any, T]
"""Steps in their order, written once for both kinds of driver.

A plan yields what a driver's method returned and is sent the answer: the value itself where the
driver is sync, the awaited value where it gave an awaitable.
"""


class Claim(Enum):
    """What came of writing the operation row."""

    WRITTEN = auto()
    OURS = auto()
    """A row with our token is there."""
    OTHERS = auto()
    """A row with another token is there."""


class TransactionDriver(Protocol):
    """Begins, marks, commits and closes on one kind of connection. It never retries anything."""

    def prepare(self, connection: Any) -> Plan[None]:
        """Make the table of operation rows, unless it is there."""
        ...

    def session(self, connection: Any) -> Any:
        """Name the server's side of the connection, so that `fence` can end it later.

        None: there is no far side, so an error is always an answer.
        """
        ...

    def fence(self, connection: Any, session: Any) -> Plan[bool]:
        """End a lost session, so that it holds nothing up and commits nothing any more.

        Answers whether it is surely gone. Where that cannot be known, `claim` still waits for it.
        """
        ...

    def begin(self, connection: Any, isolation: str | None) -> Plan[None]:
        """Start the one transaction."""
        ...

    def claim(self, connection: Any, operation_id: str, token: str) -> Plan[Claim]:
        """Write the operation row inside the transaction, or say whose is there already.

        Waits for, or conflicts with, any other transaction that is writing the same row.
        """
        ...

    def commit(self, connection: Any) -> Plan[None]:
        """Commit; done only after the database has said that it did.

        Raises TransactionRolledBackError where the database answers with a rollback, and
        TransactionEndedError where there is no transaction to commit.
        """
        ...

    def close(self, connection: Any, *, clean: bool) -> Plan[None]:
        """Give the connection up without waiting long; unclean means that it may be broken."""
        ...
