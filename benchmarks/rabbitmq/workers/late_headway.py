"""Headway with a handler that fails once; the engine is HEADWAY_BUS."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from benchmarks.rabbitmq.child import report
from benchmarks.rabbitmq.lateness import DELAY, Lateness
from benchmarks.rabbitmq.tally import LINGER
from headway import Event, RetryPolicy, Service, Work, connect, run_services
from headway.assembly.collecting import collect_seldom
from headway.retrying import Stepped
from headway.testing.engines import Worker
from headway.testing.ports import Engine


class OnceError(Exception):
    """Of a kind that no rule knows: the event's own trouble, to be tried again."""


async def main(ready: Path, failing: int, healthy: int) -> None:
    lateness = Lateness(failing, healthy)
    workers: list[Worker] = []
    second = Stepped(steps=(timedelta(seconds=DELAY),))
    service = Service("bench", transient=RetryPolicy(max_attempts=3, backoff=second))

    @service.on("OrderPlaced")
    async def handle(event: Event, work: Work) -> None:
        if lateness.begins(event.event_id, event.data):
            raise OnceError
        if lateness.over:
            asyncio.get_running_loop().call_later(LINGER, workers[0].stop)

    def started(worker: Worker, _engine: Engine) -> None:
        workers.append(worker)
        asyncio.get_running_loop().call_later(1, ready.touch)

    async with connect() as headway:
        await headway.declare(service)
    collect_seldom()
    await run_services(service, started=started)
    report(**lateness.figures())


asyncio.run(main(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
