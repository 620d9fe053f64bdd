"""Headway: a service with a handler that does nothing, in a process like that of `headway run`.

The engine is the one that HEADWAY_BUS and HEADWAY_STORE name.
"""

import asyncio
import sys
import time

from benchmarks.rabbitmq.broker import wait_for_depth
from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.tally import LINGER, PAYLOAD, Tally
from headway import Event, Service, Work, connect, run_services
from headway.assembly.collecting import collect_seldom
from headway.facts import Fact, Processed
from headway.testing.engines import Worker
from headway.testing.ports import Engine

_BATCH = 1_000


class Settled:
    """Stops a worker when all events have been acknowledged."""

    def __init__(self, tally: Tally) -> None:
        self.workers: list[Worker] = []
        self._tally = tally
        self._count = 0

    def started(self, worker: Worker, _engine: Engine) -> None:
        self.workers.append(worker)

    def tell(self, fact: Fact) -> None:
        if isinstance(fact, Processed):
            self._count += len(fact.seconds)
            if self._count == self._tally.expected:
                self._tally.ended = time.perf_counter_ns()
                asyncio.get_running_loop().call_later(LINGER, self.workers[0].stop)


def bench_service(tally: Tally) -> Service:
    service = Service("bench")

    @service.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        tally.one()

    return service


async def fill(service: Service, url: str, count: int) -> None:
    async with connect() as headway:
        await headway.declare(service)
        for _ in range(0, count, _BATCH):
            await headway.publish_all([("OrderPlaced", PAYLOAD)] * _BATCH)
    wait_for_depth(url, count, service.queues()[0].name)


async def work_off(service: Service, tally: Tally) -> None:
    settled = Settled(tally)
    collect_seldom()
    await run_services(service, observer=settled, started=settled.started)


async def main(url: str, count: int) -> None:
    tally = Tally(count)
    service = bench_service(tally)
    await fill(service, url, count)
    await work_off(service, tally)
    report(each=tally.each)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
