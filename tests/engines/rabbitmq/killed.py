"""Processes of their own that are killed at their work, by themselves or by a test.

`python -m tests.engines.rabbitmq.killed URL WORK WORDS...`

- `catalogue taken|published`: read the catalogue, and die when its messages are taken, or when
  their summary is published too;
- `route QUEUE EVENT_TYPE PAGES`: declare the queue of a service, and die after so many pages of
  unrouted events, between publish and acknowledgement;
- `requeue`: send the dead letters of ORDERS again, with a line for each.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from pika.adapters.blocking_connection import BlockingChannel

from headway.adapters.rabbitmq.looks import Looks
from headway.clock import SystemChance, SystemClock
from headway.operations import FailedQueues
from headway.testing.conformance.examples import ORDERS
from headway.testing.engines import RabbitParts, rabbitmq_parts, without_store
from headway.testing.ports import Queue

_PUBLISH, _SETTLE = BlockingChannel.basic_publish, Looks.settle


async def _started(url: str, *words: str) -> Process:
    module = "tests.engines.rabbitmq.killed"
    root = Path(__file__).parents[3]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, url, *words, cwd=root, stdout=PIPE
    )


async def dies(url: str, *words: str) -> None:
    """Run such a process until it has killed itself."""
    process = await _started(url, *words)
    assert await process.wait() == -signal.SIGKILL


async def after(lines: int, url: str, *words: str) -> None:
    """Run such a process, and kill it after so many lines."""
    process = await _started(url, *words)
    assert process.stdout is not None
    while lines and await process.stdout.readline():
        lines -= 1
    if process.returncode is None:
        process.kill()
    await process.wait()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def _catalogue(parts: RabbitParts, at: str) -> None:
    def publish(channel: Any, exchange: str, key: str, *rest: Any, **more: Any) -> None:
        if key != "headway.catalogue" or at == "published":
            _PUBLISH(channel, exchange, key, *rest, **more)
        if key == "headway.catalogue":
            _die()

    BlockingChannel.basic_publish = publish
    await parts.letters.names()


async def _route(parts: RabbitParts, queue: str, event_type: str, pages: str) -> None:
    left = int(pages)

    async def settle(looks: Looks, look: Any, messages: Any) -> None:
        nonlocal left
        if not left:
            _die()
        left -= 1
        await _SETTLE(looks, look, messages)

    Looks.settle = settle  # type: ignore[method-assign,assignment]
    failed = f"{queue.partition('.')[0]}.failed"
    await parts.bus.open([Queue(name=queue, event_types=(event_type,), failed=failed)])


async def main(url: str, work: str, *words: str) -> None:
    parts = rabbitmq_parts(url, SystemClock(), SystemChance())
    if work == "catalogue":
        await _catalogue(parts, *words)
    elif work == "route":
        await _route(parts, *words)
    else:
        queues = FailedQueues(without_store(parts), SystemClock(), SystemChance())
        await queues.requeue(ORDERS.failed, on_progress=lambda report: _say(report.passed))
    await parts.bus.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
