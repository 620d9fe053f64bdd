"""Headway's `publish_all`, a thousand events in each call; the engine is HEADWAY_BUS."""

import asyncio
import sys
import time

from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.tally import PAYLOAD, Tally
from benchmarks.rabbitmq.workers.headway import bench_service
from headway import connect

_BATCH = 1_000


async def main(count: int) -> None:
    async with connect() as headway:
        await headway.declare(bench_service(Tally(0)))
        began = time.perf_counter_ns()
        for _ in range(0, count, _BATCH):
            await headway.publish_all([("OrderPlaced", PAYLOAD)] * _BATCH)
        report(each=(time.perf_counter_ns() - began) / count)


asyncio.run(main(int(sys.argv[2])))
