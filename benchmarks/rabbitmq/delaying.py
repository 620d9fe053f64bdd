"""Events that fail once and come back after a second: how late, and who else has to wait."""

import json
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pika

from benchmarks.measure import Table
from benchmarks.rabbitmq.broker import QUEUE, channel, check_empty, virtual_host
from benchmarks.rabbitmq.child import run_child
from benchmarks.rabbitmq.contestants import HEADWAY_QUEUE
from headway.core.routing import routing_key
from headway.testing.servers.rabbitmq import RabbitMQ

FAILING = 2_000
HEALTHY = 600
EVERY = 0.005
LIMIT = 1.3
_PROMISED = ("late p50", "late p99")
_FIGURES = (*_PROMISED, "healthy p99")
_FLOOR, _HEADWAY = "pika and a queue with a time to live", "headway"
_WHERE = {
    _FLOOR: ("workers.late_pika", ("", QUEUE), QUEUE),
    _HEADWAY: (
        "workers.late_headway",
        ("headway.events", routing_key("OrderPlaced")),
        HEADWAY_QUEUE,
    ),
}


def lateness(server: RabbitMQ, rounds: int) -> Table:
    """Compare Headway with the barest consumer that loses nothing."""
    names = [_FLOOR, _HEADWAY]
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names if number % 2 else reversed(names):
            seen[name].append(_one_run(server, *_WHERE[name]))
    table = Table(f"RabbitMQ, {FAILING:,} events fail once and are put off for 1 s", "", "")
    for name, runs in seen.items():
        said = ", ".join(f"{each} {_milliseconds(runs, each):.0f} ms" for each in _FIGURES)
        table.notes.append(f"{name}: {said} (medians of {rounds} runs)")
    for figure in _PROMISED:
        pairs = zip(seen[_HEADWAY], seen[_FLOOR], strict=True)
        ratio = statistics.median(mine[figure] / floor[figure] for mine, floor in pairs)
        table.goal(f"headway / the bare queue, {figure}", ratio, LIMIT)
    return table


def _milliseconds(runs: list[dict[str, float]], figure: str) -> float:
    return statistics.median(run[figure] for run in runs) * 1000


def _one_run(server: RabbitMQ, worker: str, where: tuple[str, str], queue: str) -> dict[str, float]:
    with virtual_host(server) as url, tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        with ThreadPoolExecutor(1) as aside:
            # The events come from this process's main thread: the worker is only waited for aside.
            arguments = (url, ready, FAILING, HEALTHY)
            running = aside.submit(run_child, worker, *arguments, environment={"HEADWAY_BUS": url})
            while not ready.exists() and not running.done():
                time.sleep(0.01)
            if not running.done():
                _publish(url, *where)
            figures = running.result()
        check_empty(worker, url, queue)
        return figures


def _publish(url: str, exchange: str, key: str) -> None:
    """Publish all that fail at once, and after them a healthy one every few milliseconds."""
    properties = pika.BasicProperties(delivery_mode=2)
    with channel(url) as publishing:
        for number in range(FAILING):
            publishing.basic_publish(exchange, key, _event(f"fails-{number}"), properties)
        began = time.monotonic()
        for number in range(HEALTHY):
            publishing.basic_publish(exchange, key, _event(f"healthy-{number}"), properties)
            due = began + (number + 1) * EVERY
            publishing.connection.sleep(max(due - time.monotonic(), 0.0))


def _event(event_id: str) -> bytes:
    """Write an event as any client may, for Headway and for the bare consumer alike."""
    fails = event_id.startswith("fails")
    data = {"fails": fails, "sent": time.monotonic(), "text": "x" * 180}
    event = {"event_type": "OrderPlaced", "event_id": event_id, "data": data}
    return json.dumps(event).encode()
