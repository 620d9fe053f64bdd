"""aio-pika as it is usually made fast: a hundred publishes at once, and wait for all of them."""

import asyncio
import sys
import time

import aio_pika

from benchmarks.rabbitmq.broker import QUEUE, declare
from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.tally import BODY

_AT_ONCE = 100


async def main(url: str, count: int) -> None:
    declare(url)
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        exchange = channel.default_exchange
        began = time.perf_counter_ns()
        for _ in range(0, count, _AT_ONCE):
            persistent = aio_pika.DeliveryMode.PERSISTENT
            messages = [aio_pika.Message(BODY, delivery_mode=persistent) for _ in range(_AT_ONCE)]
            await asyncio.gather(*(exchange.publish(each, QUEUE) for each in messages))
        report(each=(time.perf_counter_ns() - began) / count)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
