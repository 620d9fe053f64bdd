"""Results in their order on Redis, against the commands that they would take without Headway.

Everybody has a database of its own on one server, with as many keys, and one connection. Results
come in their order, which is what nearly always happens; each asks whose turn it is and says that
it is done. What is measured is only that: nothing is applied.
"""

from collections.abc import Callable, Sequence
from os import getloadavg

import redis

from benchmarks.measure import Table, interleave, per_call
from benchmarks.ordering.by_headway import AT_ONCE, Ordered
from benchmarks.ordering.bytes_kept import memory_of
from benchmarks.ordering.results import Monitors, Result
from benchmarks.ordering.three_commands import ThreeCommands, ThreeCommandsAsync
from headway.testing.servers import Redis

KEYS = 1_000
MANY_KEYS = 1_000_000
HELD_KEYS = 20_000
SERIAL = 3_000
BATCHED = 20_000
_THREE = "three commands, one by one"
_ASYNC = "the same three, asyncio"
_PIPELINE = "the same three in one pipeline"
_HOLD = "zadd, expire, exists in one pipeline"
_SERIAL = "headway, one by one"
_BATCH = f"headway, {AT_ONCE} at a time"


def measure(rounds: int) -> list[Table]:
    with Redis() as server:
        with redis.Redis.from_url(server.url) as client:
            # Else the server copies itself in the middle of somebody's turn.
            client.config_set("auto-aof-rewrite-percentage", 0)
        tables = [_speed(server, rounds), memory_of(server.create_database(), HELD_KEYS)]
        return [*tables, _growth(server, rounds)]


def _turn(monitors: Monitors, count: int, run: Callable[[Sequence[Result]], None]) -> float:
    results = monitors.next(count)
    return per_call(lambda _calls: run(results), count)


def _speed(server: Redis, rounds: int) -> Table:
    three = ThreeCommands(server.create_database(), Monitors(KEYS))
    piped = ThreeCommands(server.create_database(), Monitors(KEYS))
    holding = ThreeCommands(server.create_database(), Monitors(KEYS))
    awaited = ThreeCommandsAsync(server.create_database(), Monitors(KEYS))
    serial, batch = (Ordered(server.create_database(), Monitors(KEYS)) for _ in range(2))

    def hold() -> float:
        cost = _turn(holding.monitors, SERIAL, holding.hold)
        holding.drop_backlogs()
        return cost

    contestants: dict[str, Callable[[], float]] = {
        _THREE: lambda: _turn(three.monitors, SERIAL, three.in_turn),
        _PIPELINE: lambda: _turn(piped.monitors, SERIAL, piped.in_one_pipeline),
        _HOLD: hold,
        _ASYNC: lambda: _turn(awaited.monitors, SERIAL, awaited.in_turn),
        _SERIAL: lambda: _turn(serial.monitors, SERIAL, lambda some: serial.in_turn(some, 1)),
        _BATCH: lambda: _turn(batch.monitors, BATCHED, lambda some: batch.in_turn(some, AT_ONCE)),
    }
    before = getloadavg()[0]
    # The first time the keys are made; and a server is told the script.
    for contestant in contestants.values():
        contestant()
    title = f"Ordering on Redis, {KEYS:,} keys, offer and complete"
    table = interleave(title, contestants, against=_THREE, rounds=rounds)
    three.check()
    piped.check()
    for ordered in (serial, batch):
        ordered.check()
        ordered.close()
    awaited.close()
    table.unit = "ns per result"
    table.notes.append(f"load of the machine: {before:.1f} before, {getloadavg()[0]:.1f} after")
    table.goal(f"{_SERIAL} / {_THREE}", table.rows[_SERIAL][1], 1)
    table.goal(f"{_BATCH} / {_THREE}", table.rows[_BATCH][1], 1 / 8)
    return table


def _growth(server: Redis, rounds: int) -> Table:
    few, many = (Ordered(server.create_database(), Monitors(count)) for count in (KEYS, MANY_KEYS))
    for ordered in (few, many):
        for start in range(0, len(ordered.monitors.keys), BATCHED):
            count = min(BATCHED, len(ordered.monitors.keys) - start)
            ordered.in_turn(ordered.monitors.next(count), AT_ONCE)
        # Else neighbours in a batch would be neighbours in the server's memory.
        ordered.monitors.shuffle()

    def turn(ordered: Ordered) -> float:
        return _turn(ordered.monitors, BATCHED, lambda some: ordered.in_turn(some, AT_ONCE))

    names = (f"{KEYS:,} keys", f"{MANY_KEYS:,} keys")
    contestants = {names[0]: lambda: turn(few), names[1]: lambda: turn(many)}
    title = f"Ordering on Redis, {AT_ONCE} at a time, when the keys are more"
    table = interleave(title, contestants, against=names[0], rounds=rounds)
    for ordered in (few, many):
        ordered.check()
        ordered.close()
    table.unit = "ns per result"
    table.goal(f"{names[1]} / {names[0]}", table.rows[names[1]][1], 1.5)
    return table
