"""Taskiq with its receiver in this process."""

import asyncio
import sys
from contextlib import suppress
from typing import Any

from taskiq.api import run_receiver_task
from taskiq_aio_pika import AioPikaBroker
from taskiq_aio_pika.queue import Queue, QueueType

from benchmarks.rabbitmq.broker import QUEUE, wait_for_depth
from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.tally import LINGER, PAYLOAD, Tally

_PREFETCH = 100


async def main(url: str, count: int) -> None:
    tally = Tally(count)
    over = asyncio.Event()
    queue = Queue(name=QUEUE, type=QueueType.QUORUM)
    broker = AioPikaBroker(url, qos=_PREFETCH, task_queues=[queue])
    broker.is_worker_process = True

    @broker.task  # type: ignore[untyped-decorator]
    async def handle(data: dict[str, Any]) -> None:
        if tally.one():
            over.set()

    await broker.startup()
    for _ in range(0, count, 100):
        await asyncio.gather(*(handle.kiq(PAYLOAD) for _ in range(100)))
    wait_for_depth(url, count)
    receiving = asyncio.create_task(run_receiver_task(broker))
    await over.wait()
    await asyncio.sleep(LINGER)
    receiving.cancel()
    with suppress(asyncio.CancelledError):
        await receiving
    await broker.shutdown()
    report(each=tally.each)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
