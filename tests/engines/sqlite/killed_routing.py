"""Processes that are killed before each statement of publishing or routing; see their test."""

import asyncio
import os
import shutil
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from headway.clock import SystemChance, SystemClock
from headway.testing.conformance.examples import message
from headway.testing.conformance.unrouted import SHIPPED, SHIPPING
from headway.testing.engines import sqlite_engine

connect = sqlite3.connect


def killed(path: Path, deed: str, at: int) -> None:
    """Do it, and count the statements of all connections."""
    left = at

    def counted(_statement: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(counted)
        return connection

    async def run() -> None:
        engine = sqlite_engine(path, SystemClock(), SystemChance(), synchronous="off")
        if deed == "publish":
            await engine.bus.publish([message(name, event_type=SHIPPED) for name in "def"])
        else:
            await engine.bus.open([SHIPPING])
        await engine.close()

    sqlite3.connect = traced  # type: ignore[assignment]
    asyncio.run(run())


def main(first: Path, deed: str) -> None:
    """Do it on a copy of the file for each statement, until one process comes to its end."""
    for at in range(1, 1_000):
        copy = first.with_name(f"{at}.db")
        shutil.copy(first, copy)
        child = os.fork()
        if not child:
            killed(copy, deed, at)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
