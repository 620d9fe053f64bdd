"""FastStream: a subscriber of one queue, without its log line for each event."""

import asyncio
import sys
from typing import Any

from faststream.rabbit import Channel, QueueType, RabbitBroker, RabbitQueue

from benchmarks.rabbitmq.broker import QUEUE, declare, wait_for_depth
from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.tally import LINGER, PAYLOAD, Tally

_PREFETCH = 100


async def main(url: str, count: int) -> None:
    declare(url)
    tally = Tally(count)
    over = asyncio.Event()
    broker = RabbitBroker(url, logger=None, default_channel=Channel(prefetch_count=_PREFETCH))

    @broker.subscriber(RabbitQueue(QUEUE, queue_type=QueueType.QUORUM, durable=True))  # type: ignore[untyped-decorator]
    async def handle(data: dict[str, Any]) -> None:
        if tally.one():
            over.set()

    await broker.connect()
    for _ in range(0, count, 100):
        publishing = [broker.publish(PAYLOAD, QUEUE, persist=True) for _ in range(100)]
        await asyncio.gather(*publishing)
    wait_for_depth(url, count)
    await broker.start()
    await over.wait()
    await asyncio.sleep(LINGER)
    await broker.stop()
    report(each=tally.each)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
