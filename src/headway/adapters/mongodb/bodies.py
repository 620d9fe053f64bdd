"""Statements of the user's own inside our commit: they may write, and may not end it."""

import asyncio
import inspect
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from headway.core.errors import TransactionEndedError
from headway.ports.commit import TransactionBody

_ENDINGS = ("commit_transaction", "abort_transaction", "end_session")
_COMMANDS = frozenset({"commitTransaction", "abortTransaction"})
_ENDS = (
    "the body tried to end the transaction that it shares with the record of its event: leave that "
    "to Headway, and raise something if all of it is to be undone"
)


@dataclass(frozen=True, slots=True)
class Transaction:
    """What `work.transaction` gives to a body on MongoDB.

        async def body(transaction):
            orders = transaction.database["orders"]
            await orders.insert_one({...}, session=transaction.session)

    A statement without the session is no part of the commit. A body may be called more than once,
    if others were quicker: all that it did before is undone then.
    """

    session: AsyncClientSession
    database: AsyncDatabase[dict[str, Any]]


async def run(bodies: Sequence[TransactionBody], transaction: Transaction) -> None:
    """Run bodies, one after the other.

    Raises:
        Exception: Whatever a body raised; what is no Exception comes as the cause of one.
    """
    async with _guarded(transaction.session) as tried:
        for body in bodies:
            await _run(body, transaction)
            if tried:  # even if it swallowed the error: it believes in what did not happen
                raise TransactionEndedError(_ENDS)


async def _run(body: TransactionBody, transaction: Transaction) -> None:
    try:
        answer = body(transaction)
        if inspect.iscoroutine(answer):
            answer = await answer
        _refuse_what_has_not_run(answer)
    except BaseException as error:  # no body may end the task of all
        task = asyncio.current_task()
        is_cancelled = task is not None and task.cancelling() > 0
        if isinstance(error, Exception) or is_cancelled:  # which is meant for the worker
            raise
        raise RuntimeError(f"the body raised {type(error).__name__}: {error}") from error


@asynccontextmanager
async def _guarded(session: AsyncClientSession) -> AsyncIterator[list[str]]:
    """Let the session refuse to end its transaction; give what was tried."""
    tried: list[str] = []

    def refusing(name: str) -> Any:
        async def refuse(*_: Any, **__: Any) -> NoReturn:
            tried.append(name)
            raise TransactionEndedError(_ENDS)

        return refuse

    apply_to = session._apply_to  # noqa: SLF001 (the one place that sees every command of a session)

    def apply_unless_ending(command: MutableMapping[str, Any], *args: Any, **kwargs: Any) -> None:
        if (name := next(iter(command))) in _COMMANDS:
            tried.append(name)
            raise TransactionEndedError(_ENDS)
        apply_to(command, *args, **kwargs)

    guards = {name: refusing(name) for name in _ENDINGS} | {"_apply_to": apply_unless_ending}
    for name, guard in guards.items():
        setattr(session, name, guard)
    try:
        yield tried
    finally:
        for name in guards:
            delattr(session, name)


def _refuse_what_has_not_run(answer: object) -> None:
    if inspect.iscoroutine(answer) or inspect.isgenerator(answer):
        answer.close()
    elif not (inspect.isasyncgen(answer) or inspect.isawaitable(answer)):
        return
    raise TypeError(
        f"the body gave back a {type(answer).__name__}, of which nothing has run: make it a "
        "coroutine function that does its work before it returns"
    )
