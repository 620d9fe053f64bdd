"""What came of many results: by the store's rows, its counters, and what workers wrote down."""

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headway.metrics import Metric
from headway.systems.uptime import metrics
from tests.chaos.ordering import Load, Place
from tests.chaos.slow_consumer import BATCHES
from tests.systems.uptime.crowds import MINUTE, keys


@dataclass(frozen=True)
class Seen:
    """What the store says afterwards."""

    applied: Mapping[str, list[int]]
    """The minutes of each key, in the order in which they were written."""
    counted: Mapping[str, int]
    """By the counters of the monitors, which know nothing of minutes."""
    standing: frozenset[Place]
    """Misses."""
    retracted: frozenset[Place]
    written: Mapping[Place, float]
    """When."""
    counts: Mapping[str, float]

    def false_misses(self, load: Load) -> int:
        return len((self.standing | self.retracted) - load.missing)

    def counted_by(self, metric: Metric) -> float:
        return self.counts.get(metric.name, 0)


@dataclass(frozen=True)
class Figures:
    """What the document asks of a consumer."""

    added: float
    removed: float
    timeouts: float
    breakers: float
    mean_held: float
    waits: list[float]
    """Of held results for each gap, after the missing result arrived."""

    @property
    def closed_in_time(self) -> float:
        return sum(wait <= 1 for wait in self.waits) / len(self.waits)

    def __str__(self) -> str:
        return (
            f"{self.added:.0f} held, mean {self.mean_held:.2f}; {len(self.waits)} gaps closed by "
            f"their result, {self.closed_in_time:.1%} of them within a second of its arrival; "
            f"timeouts {self.timeouts / self.added:.2%}, breaker {self.breakers / self.added:.2%}"
        )


def figures_of(folder: Path, load: Load, seen: Seen) -> Figures:
    added = seen.counted_by(metrics.ADDED)
    return Figures(
        added=added,
        removed=seen.counted_by(metrics.REMOVED),
        timeouts=seen.counted_by(metrics.TIMEOUT),
        breakers=seen.counted_by(metrics.CIRCUIT_BREAKER),
        mean_held=added / seen.counted_by(metrics.CLEARED),
        waits=closings(folder, load, seen),
    )


def seen_in(folder: Path) -> Seen:
    query = (
        "select subscription_id, scheduled_ms, guid, retracted, at"
        " from uptime_checks join proof_times using (id) order by id"
    )
    applied: dict[str, list[int]] = {}
    misses: dict[bool, set[Place]] = {False: set(), True: set()}
    written: dict[Place, float] = {}
    with contextlib.closing(sqlite3.connect(folder / "uptime.db")) as connection:
        for key, scheduled, guid, retracted, at in connection.execute(query):
            minute = scheduled // MINUTE
            if guid:
                applied.setdefault(key, []).append(minute)
            else:
                misses[bool(retracted)].add((key, minute))
            written[key, minute] = at
        monitors = connection.execute("select subscription_id, applied from uptime_monitors")
        counted = dict(monitors.fetchall())
        counts = dict(connection.execute("select name, value from uptime_counts").fetchall())
    standing, retracted = frozenset(misses[False]), frozenset(misses[True])
    return Seen(applied, counted, standing, retracted, written, counts)


def assert_exact(load: Load, seen: Seen) -> None:
    """Every result once, by the rows and by counters; the misses that stand are the true ones."""
    missing = load.missing
    assert seen.standing == missing
    assert not seen.retracted & missing
    for name in keys(load.subscriptions):
        expected = [each for each in range(1, load.minutes + 1) if (name, each) not in missing]
        assert sorted(seen.applied[name]) == expected, name
        late = {minute for key, minute in seen.retracted if key == name}
        assert seen.counted[name] == len(expected) - len(late), name
        in_time = [minute for minute in seen.applied[name] if minute not in late]
        assert in_time == sorted(in_time), name


def closings(folder: Path, load: Load, seen: Seen) -> list[float]:
    """Say for each gap whose result came how long after that the first held one was applied."""
    arrived: dict[Place, float] = {}
    held: list[Place] = []
    for line in (folder / BATCHES).read_text().splitlines():
        batch = json.loads(line)
        for guid in batch.get("guids", ()):
            arrived.setdefault(_place(guid), batch["at"])
        held += map(_place, batch.get("held", ()))
    waits: dict[tuple[Place, float], float] = {}
    missing = load.missing
    for key, minute in sorted(held, key=lambda place: place[1]):
        # What came last of all that goes before it is what it waited for.
        before = [(key, each) for each in range(1, minute)]
        last = max(before, key=lambda place: arrived.get(place, seen.written[place]))
        if last not in missing:
            since = max(arrived[last], arrived[key, minute])
            waits.setdefault((last, arrived[last]), seen.written[key, minute] - since)
    return sorted(waits.values())


def _place(guid: str) -> Place:
    key, _, minute = guid.rpartition("-")
    return key, int(minute)
