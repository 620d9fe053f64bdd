"""Stuck documents in MongoDB, requeued through RabbitMQ: one in a hundred of a million.

Everybody runs in a process of its own on the same two servers, finds the same stuck documents by
the same index, and must have counted every attempt and published every event when it ends. Then the
documents are made stuck again. The queue is another one each time.
"""

import statistics

from benchmarks.measure import Table, interleave
from benchmarks.rabbitmq.broker import depth, virtual_host
from benchmarks.rabbitmq.child import run_child
from benchmarks.sweeping.stage import COLLECTION, QUEUE, Stage
from headway.testing.servers import MongoDB, RabbitMQ

DOCUMENTS = 1_000_000
STUCK = 10_000
FEWER = 2_000
"""For whoever needs a round trip or three for each."""
_HEADWAY = "headway"
_LOOP = "find, update_one, publish, one by one"
_BARE = "the same writes in a bare loop"
_PACKAGE = "benchmarks.sweeping"


def measure(rounds: int) -> list[Table]:
    rounds = max(rounds // 3, 5)
    with RabbitMQ() as broker, MongoDB() as database:
        small = Stage(database.create_database())
        small.fill(DOCUMENTS // 10)
        large = Stage(database.create_database())
        large.fill(DOCUMENTS)
        return [_speed(broker, large, rounds), _growth(broker, small, large, rounds)]


def _turn(broker: RabbitMQ, stage: Stage, who: str, stuck: int) -> dict[str, float]:
    stage.make_stuck(stuck)
    with virtual_host(broker) as url:
        environment = {"HEADWAY_BUS": url, "HEADWAY_STORE": stage.url}
        said = run_child(who, url, stage.url, stuck, environment=environment, package=_PACKAGE)
        if (found := depth(url, QUEUE)) != stuck:
            raise RuntimeError(f"{who}: {found} of {stuck} events are in {QUEUE}")
    if (counted := stage.counted()) != stuck:
        raise RuntimeError(f"{who}: {counted} of {stuck} attempts were counted")
    return {name: float(value) for name, value in said.items()}


def _speed(broker: RabbitMQ, stage: Stage, rounds: int) -> Table:
    contestants = {
        _HEADWAY: lambda: _turn(broker, stage, "by_headway", STUCK)["each"],
        _BARE: lambda: _turn(broker, stage, "bare", STUCK)["each"],
        _LOOP: lambda: _turn(broker, stage, "one_by_one", FEWER)["each"],
    }
    title = f"Sweep, {STUCK:,} stuck of {DOCUMENTS:,} documents"
    table = interleave(title, contestants, against=_HEADWAY, rounds=rounds)
    table.unit = "ns per document"
    table.goal(f"headway / {_LOOP}", 1 / table.rows[_LOOP][1], 1 / 10)
    table.goal(f"headway / {_BARE}", 1 / table.rows[_BARE][1], 1 / 0.6)
    return table


def _growth(broker: RabbitMQ, small: Stage, large: Stage, rounds: int) -> Table:
    table = Table("Sweep, when the collection is ten times larger with as many stuck", "", "")
    times, memory = [], []
    for _ in range(rounds):
        few = _turn(broker, small, "by_headway", STUCK)
        many = _turn(broker, large, "by_headway", STUCK)
        most = _turn(broker, large, "by_headway", 5 * STUCK)
        times.append(many["each"] / few["each"])
        memory.append(most["megabytes"] - many["megabytes"])
    table.goal("time, 10x the documents", statistics.median(times), 1.5)
    table.goal("MB more, 5x the stuck ones", statistics.median(memory), 10)
    table.notes.append(f"{COLLECTION}: medians of {rounds} rounds")
    return table
