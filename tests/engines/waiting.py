"""Wait for what a thread of an engine has to do first, and not for some time to pass."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from headway.testing.engines import SqliteEngine
from headway.testing.servers.process import wait_until

_BOUND = timedelta(seconds=20)


async def until(fact: Callable[[], bool]) -> None:
    """Let the event loop go on until a fact holds."""
    assert await asyncio.to_thread(wait_until, fact, _BOUND), "it did not come to that"


async def somebody_waits(engine: SqliteEngine) -> None:
    """Wait until somebody waits for events, and the file has been looked at for them."""
    bell = engine.bus._bell
    await until(lambda: bool(bell._waiting) and bell._watching is not None)
