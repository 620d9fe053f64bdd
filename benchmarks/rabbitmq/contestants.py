"""Who takes part, and how one turn of each is run on the server."""

import tempfile
from collections.abc import Callable

from benchmarks.rabbitmq.broker import QUEUE, check_empty, depth, virtual_host
from benchmarks.rabbitmq.child import run_child
from headway.core.routing import queue_name
from headway.testing.servers.rabbitmq import RabbitMQ

Turn = Callable[[], float]
HEADWAY_QUEUE = queue_name("bench", "OrderPlaced")


def consumes(server: RabbitMQ, worker: str, count: int, *options: str, forgiven: int = 0) -> Turn:
    """Let somebody work off a backlog in its own process and virtual host."""

    def turn() -> float:
        with virtual_host(server) as url:
            said = run_child(f"workers.{worker}", url, count, *options)
            check_empty(worker, url, forgiven=forgiven)
            return float(said["each"])

    return turn


def headway_consumes(server: RabbitMQ, count: int, *, sqlite_store: bool) -> Turn:
    """Let Headway do the same, alone or with a store in an SQLite file beside the broker."""

    def turn() -> float:
        with virtual_host(server) as url, tempfile.TemporaryDirectory() as folder:
            store = {"HEADWAY_STORE": f"sqlite:///{folder}/headway.db"} if sqlite_store else {}
            engine = {"HEADWAY_BUS": url, **store}
            said = run_child("workers.headway", url, count, environment=engine)
            check_empty("headway", url, HEADWAY_QUEUE)
            return float(said["each"])

    return turn


def publishes(server: RabbitMQ, publisher: str, count: int, queue: str = QUEUE) -> Turn:
    """Let somebody publish, and see that all of it is there."""

    def turn() -> float:
        with virtual_host(server) as url:
            said = run_child(
                f"publishers.{publisher}", url, count, environment={"HEADWAY_BUS": url}
            )
            if (found := depth(url, queue)) != count:
                raise RuntimeError(f"{publisher}: {found} of {count} events are in {queue}")
            return float(said["each"])

    return turn
