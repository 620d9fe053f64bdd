"""A process that reads the catalogue, or counts starts, and is killed in the middle of it.

`python -m tests.engines.rabbitmq.killed_reader URL JOURNAL taken|published|never`
"""

import asyncio
import os
import signal
import sys
from typing import Any

from headway.adapters.rabbitmq import journal
from headway.adapters.rabbitmq.connecting import parameters
from headway.adapters.rabbitmq.desk import Desk

_PUBLISH = journal._publish


def _publish(channel: Any, queue: str, body: bytes) -> None:
    if sys.argv[3] == "published":
        _PUBLISH(channel, queue, body)
    os.kill(os.getpid(), signal.SIGKILL)


def _same(bodies: Any) -> bytes:
    return bytes(bodies[-1])


async def main() -> None:
    if sys.argv[3] != "never":
        journal._publish = _publish
    desk = Desk(parameters(sys.argv[1]))
    while True:
        await desk.run(lambda channel: journal.read(channel, sys.argv[2], _same))
        sys.stdout.write("read\n")
        sys.stdout.flush()


asyncio.run(main())
