"""Processes that are killed before each statement of publishing or routing; see their test."""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from headway.adapters.sqlite import publishing
from headway.adapters.sqlite.connection import Connection
from headway.clock import SystemChance, SystemClock
from headway.testing.conformance.examples import message
from headway.testing.conformance.unrouted import SHIPPED, SHIPPING
from headway.testing.engines import sqlite_engine

execute = Connection.execute


def killed(path: Path, deed: str, at: int) -> None:
    """Do it, and count the statements from the first one that publishes or declares."""
    left = at
    counts = False

    def counted(self: Connection, *arguments: Any) -> Any:
        nonlocal left
        left -= counts
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(self, *arguments)

    def begins(name: str) -> None:
        original = getattr(publishing, name)

        def begun(*arguments: Any) -> Any:
            nonlocal counts
            counts = True
            return original(*arguments)

        setattr(publishing, name, begun)

    async def run() -> None:
        engine = sqlite_engine(path, SystemClock(), SystemChance())
        if deed == "publish":
            await engine.bus.publish([message(name, event_type=SHIPPED) for name in "def"])
        else:
            await engine.bus.open([SHIPPING])
        await engine.close()

    begins("publish" if deed == "publish" else "declare")
    setattr(Connection, "execute", counted)  # noqa: B010 (mypy knows that it is a method)
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
