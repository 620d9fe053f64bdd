"""Statements of the user's own inside our commit: they may write, and may not end it."""

import asyncio
import inspect
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase

from headway.core.callback import refuse_unrun
from headway.core.errors import TransactionEndedError
from headway.core.origin import origin
from headway.ports.commit import TransactionBody

_ENDINGS = ("commit_transaction", "abort_transaction", "end_session")
_COMMANDS = frozenset({"commitTransaction", "abortTransaction"})
_ENDS = (
    "the body tried to end the transaction that it shares with the record of its event: leave that "
    "to Headway, and raise something if all of it is to be undone"
)


class Transaction:
    """What `work.transaction` gives to a body on MongoDB.

        async def body(transaction):
            orders = transaction.database["orders"]
            await orders.insert_one({...}, session=transaction.session)

    A plain function may return what has to be awaited. A statement without the session is no part
    of the commit. A body may be called more than once, if others were quicker: all that it did
    before is undone then.
    """

    __slots__ = ("_database", "_session", "used")

    def __init__(
        self, session: AsyncClientSession, database: AsyncDatabase[dict[str, Any]]
    ) -> None:
        self._session = session
        self._database = database
        self.used = False
        """A body has asked for the session or the database."""

    @property
    def session(self) -> AsyncClientSession:
        self.used = True
        return self._session

    @property
    def database(self) -> AsyncDatabase[dict[str, Any]]:
        self.used = True
        return self._database


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
        transaction.used = False
        answer = body(transaction)
        if inspect.isawaitable(answer):
            answer = await answer
        elif transaction.used and not inspect.isgenerator(answer):
            raise _not_awaited(body)  # noqa: TRY301 (as if the body had raised it)
        refuse_unrun(body, answer)
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


def _not_awaited(body: TransactionBody) -> TypeError:
    return TypeError(
        f"Invalid work.transaction callback ({origin(body)}): a plain function used the session, "
        "and statements of MongoDB run only when they are awaited. Use async def, or return the "
        "one statement to await."
    )
