"""An operator's process of its own, to be killed at its work: a line for each letter on the way.

python -m tests.engines.rabbitmq.operator URL WORK [LETTER_ID ...on stdin]
"""

import asyncio
import sys

from headway.clock import SystemChance, SystemClock
from headway.operations import FailedQueues, Report
from headway.testing.conformance.examples import ORDERS
from headway.testing.engines import rabbitmq_parts, without_store


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def tell(report: Report) -> None:
    say(report.passed)


async def main(url: str, work: str) -> None:
    clock = SystemClock()
    parts = rabbitmq_parts(url, clock, SystemChance())
    queues = FailedQueues(without_store(parts), clock, SystemChance())
    say("going")
    if work == "read":
        after = None
        while page := await parts.letters.read(ORDERS.failed, 100, after):
            after = page[-1].letter_id
            say("\n".join(each.letter_id for each in page))
    elif work == "export":
        async for letter in queues.export(ORDERS.failed):
            say(letter.letter_id)
    elif work == "requeue":
        await queues.requeue(ORDERS.failed, on_progress=tell)
    elif work == "remove":
        ids = sys.stdin.read().split()
        for start in range(0, len(ids), 20):
            say(await parts.letters.remove(ORDERS.failed, ids[start : start + 20]))
    await parts.bus.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
