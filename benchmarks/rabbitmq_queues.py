"""Events through one RabbitMQ server on this machine: 256 bytes of JSON, quorum queues.

Everybody runs in a process and a virtual host of its own. Consumption counts from the first event
given to a handler, which does nothing, to the last one acknowledged; the queue must be empty then.
Each fills its backlog through its own client, with as many events as make a turn of about a second.
"""

from benchmarks.measure import Table, interleave
from benchmarks.rabbitmq.contestants import (
    HEADWAY_QUEUE,
    Turn,
    consumes,
    headway_consumes,
    publishes,
)
from benchmarks.rabbitmq.delaying import lateness
from benchmarks.rabbitmq.idle import idle_worker
from headway.testing.servers.rabbitmq import RabbitMQ

EVENTS = 20_000
FEWER_EVENTS = 4_000
_HEADWAY = "headway"
_LIMIT = "raw pika, acknowledging each 100"
_AIO_PIKA = "aio-pika, gather of 100"


def measure(rounds: int) -> list[Table]:
    rounds = max(rounds // 3, 5)
    with RabbitMQ() as server:
        return [
            _consuming(server, rounds),
            _publishing(server, rounds),
            lateness(server, rounds),
            idle_worker(server, 3),
        ]


def _consuming(server: RabbitMQ, rounds: int) -> Table:
    peers: dict[str, Turn] = {
        "FastStream": consumes(server, "faststream", FEWER_EVENTS),
        "Celery, solo": _celery(server, "at-least-once"),
        "Celery, solo (at most once)": _celery(server, "at-most-once"),
        "Dramatiq, 8 threads (quorum by a hook)": consumes(server, "dramatiq", FEWER_EVENTS),
        "Taskiq": consumes(server, "taskiq", FEWER_EVENTS),
    }
    contestants = {
        _HEADWAY: headway_consumes(server, EVENTS, sqlite_store=False),
        "headway, with an SQLite store": headway_consumes(server, EVENTS, sqlite_store=True),
        _LIMIT: consumes(server, "raw_pika", EVENTS),
        **peers,
    }
    title = "RabbitMQ, consumption from a backlog"
    table = interleave(title, contestants, against=_HEADWAY, rounds=rounds)
    table.unit = "ns per event"
    table.goal(f"headway / {_LIMIT}", 1 / table.rows[_LIMIT][1], 1 / 0.7)
    for peer in peers:
        table.goal(f"headway / {peer}", 1 / table.rows[peer][1], 1 / 4)
    return table


def _celery(server: RabbitMQ, acknowledges: str) -> Turn:
    # In two runs of five it ends without having acknowledged the last 25, however long it waits.
    return consumes(server, "celery", FEWER_EVENTS, acknowledges, forgiven=100)


def _publishing(server: RabbitMQ, rounds: int) -> Table:
    contestants: dict[str, Turn] = {
        _HEADWAY: publishes(server, "headway", EVENTS, HEADWAY_QUEUE),
        _AIO_PIKA: publishes(server, "aio_pika", FEWER_EVENTS),
        "raw pika, a window of 1,000 confirms": publishes(server, "pika_window", EVENTS),
        "raw pika, waiting for each confirm": publishes(server, "pika_each", FEWER_EVENTS // 4),
    }
    title = "RabbitMQ, confirmed publishing"
    table = interleave(title, contestants, against=_HEADWAY, rounds=rounds)
    table.unit = "ns per event"
    table.goal(f"headway / {_AIO_PIKA}", 1 / table.rows[_AIO_PIKA][1], 1 / 2)
    return table


if __name__ == "__main__":
    for made in measure(15):
        print(made.as_text())
