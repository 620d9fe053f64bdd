"""Bodies of the user's own, inside the transaction of their unit."""

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

import asyncpg

from headway.adapters.postgres.link import is_gone
from headway.adapters.postgres.session import ALLOW, ALLOWED, ARM, ENDED, ended
from headway.core.callback import refuse_unrun
from headway.core.errors import TransactionEndedError, TransactionRolledBackError
from headway.core.origin import origin
from headway.ports.commit import TransactionBody

_ABORTED = "25P02"


async def run_bodies(bodies: Sequence[TransactionBody], connection: Any) -> None:
    """Run bodies one after another, each given the connection.

    Raises:
        TransactionEndedError: One of them ended the transaction, or tried to.
        TransactionRolledBackError: One of them swallowed an error of the database.
        Exception: Whatever one of them raised.
    """
    await connection.execute(ARM)
    for body in bodies:
        await _run(body, connection)
    if not connection.is_in_transaction():
        raise ended()
    try:
        # In a transaction that failed it cannot be released, and in another one it is not there.
        allowed = await connection.execute(ALLOW)
    except asyncpg.PostgresError as error:
        if error.sqlstate == _ABORTED:
            raise TransactionRolledBackError from error
        raise ended() from error
    if allowed != ALLOWED:
        raise ended()


async def _run(body: TransactionBody, connection: Any) -> None:
    session = connection.lend()
    raised: BaseException | None = None
    try:
        answer = body(connection)
        if inspect.isawaitable(answer):
            answer = await answer
        refuse_unrun(body, answer)
        if (forgotten := session.not_awaited()) is not None:
            raise _not_awaited(body, forgotten)  # noqa: TRY301 (as if the body had raised it)
    except BaseException as error:  # noqa: BLE001 (no body may end the task of all)
        raised = error
    finally:
        session.take_back()
    if isinstance(raised, asyncio.CancelledError) and _is_cancelled():
        raise raised
    if session.denied is not None:  # even if it swallowed the error: it believes in what is not so
        raise TransactionEndedError(session.denied) from raised
    if isinstance(raised, Exception):
        if not is_gone(connection) and _has_ended(connection, raised):
            raise ended() from raised
        raise raised
    if raised is not None:
        raise RuntimeError(f"the body raised {type(raised).__name__}: {raised}") from raised


def _has_ended(connection: Any, error: Exception) -> bool:
    return getattr(error, "sqlstate", None) in ENDED or not connection.is_in_transaction()


def _not_awaited(body: TransactionBody, where: str) -> TypeError:
    return TypeError(
        f"Invalid work.transaction callback ({origin(body)}): the statement at {where} was never "
        "awaited, so it did not run. Use async def and await every statement, or return the one "
        "statement to await."
    )


def _is_cancelled() -> bool:
    """Say whether it is we who are being cancelled, and not the body that only raised it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
