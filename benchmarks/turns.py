"""Run turns of Headway's own benchmarks: names on standard input, costs on standard output.

`python -m benchmarks NAME --against COMMIT` starts this in two checkouts. A turn is named
SUITE/NAME; the answer is one JSON line with its cost. Servers start with the first turn that needs
them and end with the process.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache

from benchmarks import sqlite_queues
from benchmarks.ordering import BATCHED, KEYS, SERIAL, _turn
from benchmarks.ordering.by_headway import AT_ONCE, Ordered
from benchmarks.ordering.results import Monitors
from benchmarks.rabbitmq import delaying
from benchmarks.rabbitmq.contestants import HEADWAY_QUEUE, headway_consumes, publishes
from benchmarks.rabbitmq_queues import EVENTS
from headway.testing.servers import Redis
from headway.testing.servers.rabbitmq import RabbitMQ

Turn = Callable[[], float]


def turns(stack: ExitStack) -> Mapping[str, Turn]:
    """Name every turn; the figures of one name are all of one unit."""

    @cache
    def broker() -> RabbitMQ:
        return stack.enter_context(RabbitMQ())

    @cache
    def ordered(at_once: int) -> Ordered:
        return Ordered(redis().create_database(), Monitors(KEYS))

    @cache
    def redis() -> Redis:
        return stack.enter_context(Redis())

    def order(count: int, at_once: int) -> float:
        made = ordered(at_once)
        return _turn(made.monitors, count, lambda some: made.in_turn(some, at_once))

    def event(*, effect: bool) -> float:
        return asyncio.run(sqlite_queues._headway(effect=effect))  # noqa: SLF001 (of this package)

    def consume(*, sqlite_store: bool) -> float:
        return headway_consumes(broker(), EVENTS, sqlite_store=sqlite_store)()

    def publish() -> float:
        return publishes(broker(), "headway", EVENTS, HEADWAY_QUEUE)()

    def late() -> float:
        where = delaying._WHERE[delaying._HEADWAY]  # noqa: SLF001
        return delaying._one_run(broker(), *where)["late p50"] * 1e9  # noqa: SLF001

    return {
        "sqlite/an event": lambda: event(effect=False),
        "sqlite/an event with a document": lambda: event(effect=True),
        "rabbitmq/consume": lambda: consume(sqlite_store=False),
        "rabbitmq/consume, with an SQLite store": lambda: consume(sqlite_store=True),
        "rabbitmq/publish": publish,
        "rabbitmq/lateness of retries": late,
        "ordering/one by one": lambda: order(SERIAL, 1),
        f"ordering/{AT_ONCE} at a time": lambda: order(BATCHED, AT_ONCE),
    }


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # prints of a turn are no answers
    with ExitStack() as stack:
        known = turns(stack)
        print(json.dumps(list(known)), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(known[line.rstrip("\n")]()), file=answers, flush=True)


if __name__ == "__main__":
    main()
