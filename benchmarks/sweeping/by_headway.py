"""Headway: one sweep, as `headway sweep --once` makes it."""

import asyncio
import resource
import sys
import time

from benchmarks.rabbitmq.child import report
from benchmarks.sweeping.stage import COLLECTION, FIELD
from headway import Event, Service, Sweeper, Work, connect
from headway.settings import SweepSettings

chunking = Service("chunking")


@chunking.on("JSONParsed", documents=(COLLECTION, FIELD))
async def chunk(event: Event, work: Work) -> None: ...


async def main(stuck: int) -> None:
    async with connect() as headway:  # the queues are there, as for the others
        await headway.declare(chunking)
    settings = SweepSettings(limit=1_000_000, cap=0, leader=False)
    sweeper = Sweeper(chunking, settings=settings)
    began = time.perf_counter_ns()
    ended = await sweeper.sweep_once()
    took = time.perf_counter_ns() - began
    (swept,) = ended.collections
    if swept.requeued != stuck:
        raise RuntimeError(f"{swept.requeued} of {stuck} were requeued: {ended}")
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report(each=took / stuck, megabytes=megabytes)


asyncio.run(main(int(sys.argv[3])))
