"""A worker process that is killed while it routes events, between publish and acknowledgement.

`python -m tests.engines.rabbitmq.killed_router URL QUEUE EVENT_TYPE PAGES`
"""

import asyncio
import os
import signal
import sys
from typing import Any

from headway.adapters.rabbitmq.looks import Looks
from headway.clock import SystemChance, SystemClock
from headway.testing.engines import rabbitmq_parts
from headway.testing.ports import Queue

_SETTLE = Looks.settle


async def main(url: str, queue: str, event_type: str, pages: str) -> None:
    left = int(pages)

    async def settle(looks: Looks, look: Any, messages: Any) -> None:
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        await _SETTLE(looks, look, messages)

    Looks.settle = settle  # type: ignore[method-assign,assignment]
    parts = rabbitmq_parts(url, SystemClock(), SystemChance())
    service = queue.partition(".")[0]
    await parts.bus.open([Queue(name=queue, event_types=(event_type,), failed=f"{service}.failed")])
    await parts.bus.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
