"""Run a transaction until it is committed once, or is known not to be.

Every attempt has a connection of its own, and the operation row is written inside the same
transaction. So when the connection is lost during COMMIT, the next attempt finds out what became
of it: our own row means success, no row means that nothing happened and the body runs again.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.core.errors import (
    AlreadyStoredError,
    ConfigurationError,
    DuplicateEventError,
    OutcomeUnknownError,
    TransactionEndedError,
    TransactionRolledBackError,
)
from headway.core.facts import CommitResolved
from headway.core.failure import Verdict, note, words
from headway.core.showing import described
from headway.ports.transactions import Claim, Plan, TransactionDriver
from headway.runtime.plan import follow, follow_async
from headway.runtime.retrying import Retrying, is_async


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What to run, and how to recognise it afterwards."""

    connect: Callable[[], Any]
    body: Callable[[Any], Any]
    operation_id: str
    token: str
    driver_for: Callable[[Any], TransactionDriver]
    find: Callable[[Any], Any] | None = None
    """Says on a fresh connection whether the operation is there; instead of the operation row."""
    isolation: str | None = None
    context: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given: object = self.operation_id
        if not isinstance(given, str) or not given:
            raise ConfigurationError(
                f"operation_id={given!r} is not accepted: name the operation by a text "
                "that stays the same when it is sent again, such as the event id"
            )

    def run(self, retrying: Retrying) -> Any:
        """Run it; with a coroutine function for a body, give an awaitable."""
        attempts = _Attempts(self, retrying)
        if is_async(self.body):
            return self._run_async(attempts, retrying)
        try:
            return retrying(lambda: follow(attempts.plan()))()
        except Exception as error:
            attempts.refuse_to_guess(error)
            raise

    async def _run_async(self, attempts: "_Attempts", retrying: Retrying) -> Any:
        async def attempt() -> Any:
            return await follow_async(attempts.plan())

        try:
            return await retrying(attempt)()
        except Exception as error:
            attempts.refuse_to_guess(error)
            raise


@dataclass(frozen=True, slots=True)
class _InDoubt:
    """A COMMIT that was sent and never answered."""

    value: Any
    """What the body returned: the answer of the whole call, should the commit turn out done."""


class _Attempts:
    """The attempts of one transaction, and what one has to know of those before it."""

    def __init__(self, transaction: Transaction, retrying: Retrying) -> None:
        self._transaction = transaction
        self._retrying = retrying
        self._in_doubt: _InDoubt | None = None
        self._lost: list[Any] = []
        """Sessions whose connection broke: the server may not know yet, and keep their locks."""
        self._count = 0
        self._claimed = False

    def plan(self) -> Plan[Any]:
        """Lay out one attempt as steps, without doing any: sync and async drivers do them."""
        transaction = self._transaction
        self._count += 1
        connection = yield transaction.connect()
        driver = transaction.driver_for(connection)
        session = driver.session(connection)
        clean = False
        try:
            value = yield from self._inside(driver, connection, session)
        except BaseException as error:
            if self._is_silence(error, session):
                self._lost.append(session)
            raise
        else:
            clean = True
            return value
        finally:
            yield from self._close(driver, connection, clean=clean)

    def refuse_to_guess(self, error: Exception) -> None:
        """Raise if the last word on a sent COMMIT is still missing."""
        if self._in_doubt is not None:
            self._resolved(committed=None)
            if not isinstance(error, OutcomeUnknownError):
                raise self._unknown() from error

    def _inside(self, driver: TransactionDriver, connection: Any, session: Any) -> Plan[Any]:
        if (yield from self._begin_or_find(driver, connection)):
            return self._found_done()
        self._resolved(committed=False)
        value = yield self._transaction.body(connection)
        try:
            yield from driver.commit(connection)
        except BaseException as error:
            if self._is_silence(error, session):
                self._in_doubt = _InDoubt(value)
                if not isinstance(error, Exception):  # cancelled: nobody will ask any more
                    self._leave_unknown(error)
            raise
        return value

    def _begin_or_find(self, driver: TransactionDriver, connection: Any) -> Plan[bool]:
        """Begin, and say whether the operation is there already, by our own hand."""
        transaction = self._transaction
        gone = yield from self._fence(driver, connection)
        if transaction.find is not None:
            if self._in_doubt is not None:
                if (yield transaction.find(connection)):
                    return True
                if not gone:  # it may still commit, and nothing but an operation row waits for it
                    raise self._unknown()
            yield from driver.begin(connection, transaction.isolation)
            return False
        yield from driver.begin(connection, transaction.isolation)
        claim = yield from self._claim(driver, connection)
        if claim is Claim.OTHERS:
            self._resolved(committed=False)
            raise DuplicateEventError(transaction.operation_id)
        self._claimed = self._claimed or claim is Claim.WRITTEN
        return claim is Claim.OURS

    def _fence(self, driver: TransactionDriver, connection: Any) -> Plan[bool]:
        """End the sessions that were lost, and say whether they are surely gone."""
        while self._lost:
            gone = yield from driver.fence(connection, self._lost[-1])
            if not gone:
                return False
            self._lost.pop()
        return True

    def _claim(self, driver: TransactionDriver, connection: Any) -> Plan[Claim]:
        transaction = self._transaction
        try:
            return (
                yield from driver.claim(connection, transaction.operation_id, transaction.token)
            )
        except Exception as error:
            if "headway_operations" in words(error):
                note(
                    error,
                    "run_transaction writes its operation row there: make the table once with "
                    "headway.create_operations_table(connect), or pass find= to use a row of yours",
                )
            raise

    def _found_done(self) -> Any:
        """Give the answer of the attempt that turned out done; of an earlier call there is none."""
        in_doubt = self._in_doubt
        if in_doubt is None:
            # Written by us in this call, and yet we never said COMMIT: then the body did.
            if self._claimed:
                raise TransactionEndedError
            raise AlreadyStoredError(self._transaction.operation_id)
        self._resolved(committed=True)
        return in_doubt.value

    def _leave_unknown(self, error: BaseException) -> None:
        transaction = self._transaction
        note(
            error,
            f"operation {transaction.operation_id!r} was being committed: whether it is stored is "
            f"unknown; run_transaction with token={transaction.token!r} finds out",
        )
        self._resolved(committed=None)

    def _resolved(self, *, committed: bool | None) -> None:
        transaction = self._transaction
        if self._in_doubt is None:
            return
        self._in_doubt = None
        self._retrying.observer.tell(
            CommitResolved(
                call=self._retrying.name or "run_transaction",
                operation_id=transaction.operation_id,
                committed=committed,
                context=transaction.context,
            )
        )

    def _unknown(self) -> OutcomeUnknownError:
        transaction = self._transaction
        return OutcomeUnknownError(transaction.operation_id, self._count, transaction.token)

    def _is_silence(self, error: BaseException, session: Any) -> bool:
        """Say whether the database did not answer: what it was asked to do may be done or not."""
        if session is None:
            return False
        if isinstance(error, TransactionEndedError | TransactionRolledBackError):
            return False
        diagnosis = self._retrying.classify(error)
        return (
            diagnosis.code is None
            or diagnosis.error_type == "CONNECTION_ERROR"
            or diagnosis.verdict is Verdict.UNKNOWN_OUTCOME
        )

    def _close(self, driver: TransactionDriver, connection: Any, *, clean: bool) -> Plan[None]:
        try:
            yield from driver.close(connection, clean=clean)
        # What became of the transaction is known, and must not be changed by this.
        except Exception as error:  # noqa: BLE001
            logging.getLogger("headway").warning(
                "Could not close a connection of %s: %s",
                self._retrying.name or "run_transaction",
                described(error),
            )
