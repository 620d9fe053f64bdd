"""A run in figures."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from headway.order import Why
from headway.systems.uptime.demo.journal import Entry, Journal

Position = tuple[str, int]
SOON = 30.0
"""So many seconds after it opened, a gap should be filled."""
_MINUTE = 60


@dataclass(frozen=True, slots=True)
class Line:
    """A figure over time."""

    name: str
    points: Sequence[tuple[float, float]]
    """Seconds since the beginning, and the figure then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of a run."""

    way: str
    came: int
    applied: int
    in_order: bool
    twice: int
    false_misses: int
    """Made up for results that came."""
    true_misses: int
    """Made up for results that never came."""
    never_came: int
    retracted: int
    added: int
    timeouts: int
    breakers: int
    cleared: int
    mean_held: float
    """Of keys that hold any, while somebody consumes."""
    filled: int
    filled_soon: int
    p50: float
    p95: float
    """Seconds from the topic until it was applied."""
    seconds: float
    """Real ones, for all of it."""
    false_line: Line
    latency_line: Line
    held_line: Line

    @property
    def not_applied(self) -> int:
        """Results that came and were thrown away, because others had overtaken them."""
        return self.came - self.applied

    def as_dict(self) -> dict[str, Any]:
        """Give the figures, for machines."""
        lines = {"false_line": "false_misses", "latency_line": "p95", "held_line": "held"}
        figures = {name: getattr(self, name) for name in self.__slots__ if name not in lines}
        over_time = {name: getattr(self, line).points for line, name in lines.items()}
        return {**figures, "not_applied": self.not_applied, "over_time": over_time}


def measure(
    way: str,
    journal: Journal,
    *,
    came: Mapping[Position, float],
    missing: frozenset[Position],
    still: Sequence[tuple[float, float]],
    until: float,
    seconds: float,
) -> Measured:
    """Measure a run.

    `came` has for every result that came the time when it reached the topic, `still` from when to
    when nobody consumed.
    """
    false = [entry for entry in journal.missed if (entry.key, entry.position) in came]
    found = {(e.key, e.position) for e in journal.missed} & missing
    waits = sorted(entry.at - came[entry.key, entry.position] for entry in journal.applied)
    distinct = {(entry.key, entry.position) for entry in journal.applied}
    return Measured(
        way=way,
        came=len(came),
        applied=len(distinct),
        in_order=_in_order(journal.applied),
        twice=len(journal.applied) - len(distinct),
        false_misses=len(false),
        true_misses=len(found),
        never_came=len(missing),
        retracted=len(journal.retracted),
        added=journal.added,
        timeouts=journal.given_up[Why.TIMEOUT] + journal.given_up[Why.TOO_OLD],
        breakers=journal.given_up[Why.BREAKER],
        cleared=journal.cleared,
        mean_held=_mean_held(journal.held, still, until),
        filled=len(journal.filled),
        filled_soon=sum(open_for <= SOON for open_for in journal.filled),
        p50=_quantile(waits, 0.5),
        p95=_quantile(waits, 0.95),
        seconds=seconds,
        false_line=Line(way, _counted(false, until)),
        latency_line=Line(way, _latency(journal.applied, came, until)),
        held_line=Line(way, _held(journal.held, until)),
    )


def _in_order(applied: Iterable[Entry]) -> bool:
    last: dict[str, int] = {}
    for entry in applied:
        if entry.position <= last.get(entry.key, -1):
            return False
        last[entry.key] = entry.position
    return True


def _mean_held(
    held: Sequence[tuple[float, int, int]], still: Sequence[tuple[float, float]], until: float
) -> float:
    """Give the mean number of held results of a key, over the time in which it holds any.

    While nobody consumes nothing changes, so that time does not count.
    """
    results = keys = 0.0
    for (at, count, of), (then, _, _) in pairwise([*held, (until, 0, 0)]):
        lasts = then - at - sum(max(min(then, end) - max(at, begin), 0) for begin, end in still)
        results += count * lasts
        keys += of * lasts
    return results / keys if keys else 0.0


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)] if values else 0.0


def _minutes(until: float) -> range:
    return range(0, int(until) + 1, _MINUTE)


def _counted(entries: Sequence[Entry], until: float) -> list[tuple[float, float]]:
    times = sorted(entry.at for entry in entries)
    return [(float(at), float(bisect_left(times, at))) for at in _minutes(until)]


def _latency(
    applied: Sequence[Entry], came: Mapping[Position, float], until: float
) -> list[tuple[float, float]]:
    """Give for each minute how long 95 % of what came in it waited at most."""
    waits: dict[int, list[float]] = defaultdict(list)
    for entry in applied:
        reached = came[entry.key, entry.position]
        waits[int(reached) // _MINUTE].append(entry.at - reached)
    points = [(at, sorted(waits.get(at // _MINUTE, ()))) for at in _minutes(until)]
    return [(float(at), _quantile(some, 0.95)) for at, some in points if some]


def _held(held: Sequence[tuple[float, int, int]], until: float) -> list[tuple[float, float]]:
    """Give for each sixth of a minute how many were held at most."""
    points, count, at = [], 0, 0
    for begin in range(0, int(until) + 1, _MINUTE // 6):
        most = count
        while at < len(held) and held[at][0] < begin + _MINUTE // 6:
            count = held[at][1]
            most = max(most, count)
            at += 1
        points.append((float(begin), float(most)))
    return points
