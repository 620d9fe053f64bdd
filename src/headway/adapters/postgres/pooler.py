"""Recognize a pooler that gives each transaction another session, such as PgBouncer can be set to.

There, statements that asyncpg has prepared are missing or belong to other clients. Errors would
come later, and only under load.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import asyncpg

from headway.adapters.postgres.refusals import Place

_DIRECT = "SELECT 1"
_SECONDS = 3.0
_ORDER = (0, 1, 0, 0, 1, 1, 0, 1)
"""Which of two clients asks. Neither the newest-first nor the round-robin choice of a session gives
each client one of its own in this order."""


async def refuse_pooled_sessions(connection: Any, dsn: str, place: Place) -> None:
    """Raise ConfigurationError if the sessions of two idle clients change between transactions."""
    # A pooler answers a new client with a process id of its own making.
    of_server = f"select where pg_backend_pid() = {connection.get_server_pid()}"
    if await connection.execute(of_server) == _DIRECT or not await _change(dsn):
        return
    raise place.refusal(
        "is behind a pooler that gives each transaction another session, as PgBouncer does with "
        "pool_mode=transaction: prepared statements get lost there",
        "add statement_cache_size=0 to the URL, or set the pooler to pool_mode=session",
    )


async def _change(dsn: str) -> bool:
    seen: tuple[set[int], set[int]] = set(), set()
    try:
        async with AsyncExitStack() as open_clients, asyncio.timeout(_SECONDS):
            clients = []
            for _ in seen:
                client = await asyncpg.connect(dsn, statement_cache_size=0)
                open_clients.callback(client.terminate)
                clients.append(client)
            for which in _ORDER:
                async with clients[which].transaction():
                    pid = await clients[which].fetchval("select pg_backend_pid()")
                seen[which].add(pid)
                if len(seen[which]) > 1 or seen[0] & seen[1]:
                    return True
    except TimeoutError:  # a client that keeps its session leaves none for others
        return False
    return False
