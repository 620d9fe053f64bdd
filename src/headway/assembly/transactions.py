"""`run_transaction`, bound to the drivers that Headway knows."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar, overload

from headway.adapters.postgres.by_asyncpg import AsyncpgDriver
from headway.adapters.postgres.by_psycopg import PsycopgDriver
from headway.adapters.sqlite.transactions import SqliteDriver
from headway.adapters.system.chance import CHANCE
from headway.adapters.system.clock import CLOCK
from headway.assembly.retrying import Expected, exception_classes, transaction_retrying
from headway.core.errors import AlreadyStoredError, ConfigurationError, DuplicateEventError
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.observer import Observer
from headway.ports.transactions import Plan, TransactionDriver
from headway.runtime.plan import follow, follow_async
from headway.runtime.transactions import Transaction

C = TypeVar("C")
R = TypeVar("R")

_PSYCOPG = PsycopgDriver()
DRIVERS: Mapping[str, TransactionDriver] = {
    "asyncpg.connection.Connection": AsyncpgDriver(),
    "psycopg.AsyncConnection": _PSYCOPG,
    "psycopg.Connection": _PSYCOPG,
    "sqlite3.Connection": SqliteDriver(),
}


@overload
def run_transaction(
    connect: Callable[[], Awaitable[C]],
    body: Callable[[C], Awaitable[R]],
    *,
    operation_id: str,
    token: str | None = None,
    find: Callable[[C], Awaitable[object]] | None = None,
    isolation: str | None = None,
    stop_after: int = 5,
    min_wait: float = 0.1,
    max_wait: float = 2.0,
    name: str | None = None,
    context: Mapping[str, str] | None = None,
    expected: Expected = (),
    observer: Observer | None = None,
    driver: TransactionDriver | None = None,
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> Coroutine[Any, Any, R]: ...
@overload
def run_transaction(
    connect: Callable[[], C],
    body: Callable[[C], R],
    *,
    operation_id: str,
    token: str | None = None,
    find: Callable[[C], object] | None = None,
    isolation: str | None = None,
    stop_after: int = 5,
    min_wait: float = 0.1,
    max_wait: float = 2.0,
    name: str | None = None,
    context: Mapping[str, str] | None = None,
    expected: Expected = (),
    observer: Observer | None = None,
    driver: TransactionDriver | None = None,
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> R: ...
def run_transaction(
    connect: Callable[[], Any],
    body: Callable[[Any], Any],
    *,
    operation_id: str,
    token: str | None = None,
    find: Callable[[Any], Any] | None = None,
    isolation: str | None = None,
    stop_after: int = 5,
    min_wait: float = 0.1,
    max_wait: float = 2.0,
    name: str | None = None,
    context: Mapping[str, str] | None = None,
    expected: Expected = (),
    observer: Observer | None = None,
    driver: TransactionDriver | None = None,
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> Any:
    """Run `body(connection)` in one transaction, on a fresh connection for each attempt.

    Conflicts and lost connections are retried as by `retry_on_oc000`. An operation row is written
    in the same transaction, so that a connection lost during COMMIT is resolved: our own row found
    means success and gives the body's answer, no row means that the body runs again.

    Args:
        connect: Opens a connection: asyncpg, psycopg (sync or async) or sqlite3. It is closed at
            the end of the attempt, whatever happens.
        body: The statements. It must leave BEGIN, COMMIT and ROLLBACK to us; savepoints are fine.
            As it may run several times, it must have no effects outside the database.
        operation_id: Names the operation; two with the same id are stored once.
        token: Tells our row from another caller's. Give one only to ask again, in a later call,
            for an operation whose outcome stayed unknown: AlreadyStoredError then says that it
            had been stored.
        find: Instead of the operation row: says on a fresh connection whether the operation is
            stored, by a row of your own that the body writes.
        isolation: `serializable`, `repeatable_read` or `read_committed` on PostgreSQL; `immediate`
            or `exclusive` on SQLite. Without it, the database's default.
        stop_after: Attempts in all.
        min_wait: Seconds before the first retry, doubling from there, with 0 to 100 ms on top.
        max_wait: Seconds that no wait exceeds.
        name: What logs and metrics call it; the body's qualified name if not given.
        context: Fields for the log lines.
        expected: Exceptions by which the body answers, such as a refusal by a rule of the business:
            raised as they are, after a rollback, and neither logged nor counted.
        observer: Hears the facts besides the log.
        driver: How to use a kind of connection that is not in the list.
        clock: Tells the time and waits.
        chance: Rolls the dice for the jitter and makes the token.

    Raises:
        DuplicateEventError: Another caller stored this operation before.
        AlreadyStoredError: An earlier call with the same token stored it.
        OutcomeUnknownError: The connection was lost during COMMIT and the database could not be
            asked again within the attempts.
    """
    _check_connect(connect)
    token = token or chance.token()
    fields = {"transaction_id": token, **(context or {})}
    return Transaction(
        connect=connect,
        body=body,
        operation_id=operation_id,
        token=token,
        driver_for=(lambda _connection: driver) if driver else driver_for,
        find=find,
        isolation=isolation,
        context=fields,
    ).run(
        transaction_retrying(
            stop_after=stop_after,
            min_wait=min_wait,
            max_wait=max_wait,
            name=name or getattr(body, "__qualname__", "run_transaction"),
            context=lambda: fields,
            expected=(
                AlreadyStoredError,
                DuplicateEventError,
                *exception_classes("expected", expected),
            ),
            observer=observer,
            clock=clock,
            chance=chance,
        )
    )


@overload
def create_operations_table(  # type: ignore[overload-overlap]  # the first that fits is meant
    connect: Callable[[], Awaitable[object]],
) -> Coroutine[Any, Any, None]: ...
@overload
def create_operations_table(connect: Callable[[], object]) -> None: ...
def create_operations_table(connect: Callable[[], Any]) -> Any:
    """Make the table for operation rows, once, before `run_transaction` is used.

    With an async driver, await the answer. It is safe to call again and from several processes.
    Rows are needed while an operation may still be sent again; older ones may be deleted by their
    `stored_at`.
    """
    connecting = connect()
    plan = _create_operations_table(connecting)
    return follow_async(plan) if inspect.isawaitable(connecting) else follow(plan)


def _create_operations_table(connecting: Any) -> Plan[None]:
    connection = yield connecting
    driver = driver_for(connection)
    try:
        yield from driver.prepare(connection)
    finally:
        yield from driver.close(connection, clean=False)


def driver_for(connection: object) -> TransactionDriver:
    """Recognise a connection by its class, without importing any driver."""
    driver = _known_driver(connection)
    if driver is not None:
        return driver
    kind = type(connection)
    raise ConfigurationError(
        f"connect gave a {kind.__module__}.{kind.__qualname__}, which run_transaction does not "
        f"know: connect by one of {', '.join(sorted(DRIVERS))}, or pass driver="
    )


def _known_driver(connection: object) -> TransactionDriver | None:
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__)
    return next((DRIVERS[name] for name in names if name in DRIVERS), None)


def _check_connect(connect: object) -> None:
    if not callable(connect) or _known_driver(connect) is not None:
        raise ConfigurationError(
            f"connect={connect!r} is not accepted: give a function that opens a connection, for "
            "every attempt needs a fresh one"
        )
