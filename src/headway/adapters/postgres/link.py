"""The way to the server: a few connections, and transactions that are repeated where that is safe.

Nothing is left behind in a session, and every limit is set inside its transaction: so a pooler that
gives each transaction another session (pgbouncer) may stand in between.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import asyncpg

from headway.adapters.postgres.options import named, options
from headway.adapters.postgres.pooler import refuse_pooled_sessions
from headway.adapters.postgres.refusals import (
    Place,
    is_conflict,
    is_of_connection,
    is_of_driver,
    is_of_server,
)
from headway.adapters.postgres.session import CLEAN, DURABLE, READ_ONLY, READ_WRITE, Session
from headway.adapters.postgres.silence import Silence
from headway.core.errors import TransactionRolledBackError

T = TypeVar("T")
Work = Callable[[Any], Awaitable[T]]
"""What is done inside a transaction, given its connection."""

CONNECTIONS = 5
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_IDLE_SECONDS = 120.0
_TRIES = 20

# The server gives up before we do, and then says so. A session whose client is gone without a word
# must not keep its locks for hours.
LIMITS = f"""
set local statement_timeout = '25s'; set local idle_in_transaction_session_timeout = '60s';
{DURABLE}
"""
# Every statement of ours is about rows that are named, or about those of one index. A planner that
# knows little of a table would rather read all of it; and rows are locked in the order of an index.
# Where there is no other way than the one that is off, it would compile the statement for a second.
_BY_INDEX = """
set local enable_seqscan = off; set local enable_bitmapscan = off; set local jit = off
"""
# Nobody of ours keeps a lock for so long. One who is not ours may keep it for hours, and then all
# that waits in the same transaction would wait with it.
_LOCKS = "set local lock_timeout = '3s'"
BEGIN = f"begin isolation level read committed read write; {LIMITS}; {_LOCKS}; {_BY_INDEX}"


class MeanwhileError(Exception):
    """Somebody else made the same at the same moment: it has to be looked at again."""


class AtCommitError(Exception):
    """What a body did was refused as late as at COMMIT, by a constraint or trigger; the cause."""


class _StaleError(Exception):
    """The connection was gone before anything was asked."""


class Link:
    """Connections to one database, opened when they are first needed, for one event loop."""

    def __init__(
        self,
        url: str,
        prepare: Callable[[Any, Place], Awaitable[None]] | None = None,
        *,
        connections: int = CONNECTIONS,
    ) -> None:
        self.place = Place(url)
        self._dsn, self._cached = options(self.place)
        self._prepare = prepare
        self._connections = connections
        self._pool: Any = None
        self._silence = Silence()
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect, and make sure that the database can be used."""
        await self._opened()

    async def close(self) -> None:
        """Let go of all connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    await pool.close()
            except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pool.terminate()  # a goodbye on a broken connection could wait for ever

    async def run(self, work: Work[T], *, lends: bool = False) -> T:
        """Do work inside a transaction of its own; all of it again if others were in the way.

        Args:
            work: What is done. When it raises, nothing of it has happened.
            lends: Bodies of the user's own are given the connection.
        """
        for _ in range(_TRIES - 1):
            try:
                return await self._once(work, lends=lends)
            except (MeanwhileError, _StaleError):
                continue
            except asyncpg.PostgresError as error:
                has_waited = isinstance(error, asyncpg.LockNotAvailableError)
                if has_waited or not is_conflict(error):
                    raise
        return await self._once(work, lends=lends)

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        """Read with one statement."""
        if not self._cached:
            return await self.run(lambda connection: connection.fetch(statement, *values))
        for _ in range(_TRIES - 1):
            try:
                return await self._fetch(statement, values)
            except _StaleError:
                continue
        return await self._fetch(statement, values)

    async def outside(self, statement: str, seconds: float, lock_seconds: int) -> None:
        """Say one statement outside of any transaction, and wait so long for it and for locks.

        A pooler would give the limits to somebody else's session: there, none is set for locks.
        """
        async with self.connected() as connection:
            if self._cached:
                limits = f"set statement_timeout = 0; set lock_timeout = '{lock_seconds}s'"
                await connection.execute(limits)
            try:
                await connection.execute(statement, timeout=seconds)
            finally:
                if self._cached and not is_gone(connection):
                    await connection.execute("reset statement_timeout; reset lock_timeout")

    @asynccontextmanager
    async def connected(self, *, lends: bool = False) -> AsyncIterator[Any]:
        """Give a connection inside the block; one whose state nobody knows is not used again."""
        pool = await self._opened()
        connection = await self._acquired(pool)
        try:
            yield connection
        except BaseException as error:
            if is_of_connection(error):
                _terminate(connection)
            if is_of_driver(error):
                explained = self.place.explained(error, _ANSWER_SECONDS)
                if explained is not error:
                    raise explained from error
            raise
        finally:
            await _released(pool, connection, lends=lends)

    async def _fetch(self, statement: str, values: Sequence[Any]) -> Sequence[Any]:
        async with self.connected() as connection:
            try:
                found: Sequence[Any] = await connection.fetch(statement, *values)
            except Exception as error:
                if is_gone(connection):  # reading can be repeated, and connecting says more
                    raise _StaleError from error
                raise
            return found

    async def _once(self, work: Work[T], *, lends: bool) -> T:
        async with self.connected(lends=lends) as connection:
            # asyncpg's own kind of transaction lets a body nest others in it.
            transaction = connection.transaction(isolation="read_committed") if lends else None
            try:
                if transaction is None:
                    await connection.execute(BEGIN)
                else:
                    if self._cached:  # a pooler would keep the setting for other clients
                        await connection.execute(READ_ONLY)
                    await transaction.start()
                    await connection.execute(f"{READ_WRITE}; {LIMITS}")
            except Exception as error:
                if is_gone(connection):
                    raise _StaleError from error
                raise
            try:
                answer = await work(connection)
            except Exception as error:
                if not (is_of_connection(error) or is_gone(connection)):
                    await _undo(connection, transaction)
                raise
            if transaction is not None:
                await _commit_lent(connection, transaction)
            elif await connection.execute("commit") != "COMMIT":
                raise TransactionRolledBackError
            return answer

    async def _opened(self) -> Any:
        if self._pool is None:
            async with self._opening:
                if self._pool is None:
                    self._pool = await self._made()
        return self._pool

    async def _made(self) -> Any:
        self._silence.check()
        pool = None
        try:
            pool = await asyncpg.create_pool(
                self._dsn,
                min_size=0,
                max_size=self._connections,
                max_inactive_connection_lifetime=_IDLE_SECONDS,
                connection_class=Session,
                timeout=_CONNECT_SECONDS,
                command_timeout=_ANSWER_SECONDS,
                **({} if self._cached else {"statement_cache_size": 0}),
                **named(self._dsn),
            )
            if self._prepare is not None:
                async with pool.acquire() as connection:
                    if self._cached:
                        await refuse_pooled_sessions(connection, self._dsn, self.place)
                    await self._prepare(connection, self.place)
        except BaseException as error:
            if pool is not None:
                pool.terminate()
            if not isinstance(error, Exception):
                raise
            explained = self.place.explained_at_start(error, _CONNECT_SECONDS)
            raise self._silence.heard(error, explained) from error
        return pool

    async def _acquired(self, pool: Any) -> Any:
        try:
            return await pool.acquire()
        except Exception as error:
            explained = self.place.away(error, _CONNECT_SECONDS)
            if explained is error:
                raise
            raise explained from error


async def _undo(connection: Any, transaction: Any | None) -> None:
    if transaction is None:
        await connection.execute("rollback")
        return
    try:
        await transaction.rollback()
    except asyncpg.InterfaceError:  # a body has used up the driver's own idea of it
        _terminate(connection)


async def _commit_lent(connection: Any, transaction: Any) -> None:
    try:
        await transaction.commit()
    except asyncpg.PostgresError as error:
        if is_gone(connection) or is_of_server(error):
            raise
        # Not repeated, even if it was a conflict: the body has run.
        raise AtCommitError from error


async def _released(pool: Any, connection: Any, *, lends: bool) -> None:
    try:
        if lends and not is_gone(connection):
            if connection.changed:
                connection.terminate()
            else:
                await connection.execute(CLEAN)
        await pool.release(connection, timeout=_CONNECT_SECONDS)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        _terminate(connection)


def is_gone(connection: Any) -> bool:
    """Say whether a connection was closed; the pool may have taken it back by then."""
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        return True


def _terminate(connection: Any) -> None:
    with suppress(asyncpg.InterfaceError):  # the pool has taken it back
        connection.terminate()
