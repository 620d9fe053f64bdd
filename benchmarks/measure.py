"""Interleaved measuring: the machine is noisy, so only ratios within one round mean something."""

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Goal:
    """A ratio that has to be reached."""

    text: str
    value: float
    limit: float

    @property
    def reached(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        mark = "reached" if self.reached else "NOT REACHED"
        return f"  {mark}: {self.text}: {self.value:.2f} (limit {self.limit:.4g})"


@dataclass
class Table:
    """One benchmark: median cost and median ratio for each contestant."""

    title: str
    unit: str
    against: str
    rows: dict[str, tuple[float, float]] = field(default_factory=dict)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def goal(self, text: str, value: float, limit: float) -> None:
        self.goals.append(Goal(text, value, limit))

    def ratio(self, name: str, to: str) -> float:
        return self.rows[name][1] / self.rows[to][1]

    def as_text(self) -> str:
        lines = [self.title]
        if self.rows:
            lines.append(f"  {'':38}{self.unit:>12}   x {self.against}")
        lines += [
            f"  {name:38}{cost:12,.0f}{ratio:10.2f}"
            for name, (cost, ratio) in sorted(self.rows.items(), key=lambda row: row[1][0])
        ]
        noted = [f"  {note}" for note in self.notes]
        return "\n".join([*lines, *noted, *map(str, self.goals), ""])

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "unit": self.unit,
            "against": self.against,
            "rows": {
                name: {"median": cost, "ratio": ratio} for name, (cost, ratio) in self.rows.items()
            },
            "notes": self.notes,
            "goals": [
                {"goal": g.text, "value": g.value, "limit": g.limit, "reached": g.reached}
                for g in self.goals
            ],
        }


def interleave(
    title: str, contestants: Mapping[str, Callable[[], float]], *, against: str, rounds: int
) -> Table:
    """Run every contestant once in each round, in a new order, and take medians over the rounds."""
    costs: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        progress(title, number, rounds)
        random.shuffle(names)
        for name in names:
            costs[name].append(contestants[name]())
    progress(title, rounds, rounds)
    table = Table(title, "ns per call", against)
    for name, figures in costs.items():
        ratios = [mine / base for mine, base in zip(figures, costs[against], strict=True)]
        table.rows[name] = (statistics.median(figures), statistics.median(ratios))
    return table


def per_call(loop: Callable[[int], object], calls: int) -> float:
    """Give nanoseconds for each of `calls` turns of a loop, with the collector out of the way."""
    gc.collect()
    gc.disable()
    try:
        started = time.perf_counter_ns()
        loop(calls)
        return (time.perf_counter_ns() - started) / calls
    finally:
        gc.enable()


def progress(title: str, done: int, of: int) -> None:
    """Draw a bar where a person looks."""
    if sys.stderr.isatty():
        bar = "#" * (30 * done // of)
        end = "\n" if done == of else ""
        print(f"\r{title[:50]:50} [{bar:30}] {done}/{of}", end=end, file=sys.stderr, flush=True)
