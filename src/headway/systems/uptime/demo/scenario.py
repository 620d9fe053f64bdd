"""What happens in the demonstration: who is checked, what never comes, when nobody consumes.

All times are seconds since the beginning, and virtual: nobody waits for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.clock import Chance

_SOONEST, _LATEST = 0.3, 3.0
"""How long a result is on its way from the checker into the topic."""

_BACKLOGS, _FIRST_BACKLOG, _EVERY = 6, 240, 450


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The numbers of a run. The same numbers and the same seed give the same run."""

    subscriptions: int = 400
    checks: int = 50
    """Of each subscription, one in every interval."""
    interval: int = 60
    missing: float = 0.001
    """The share of checks whose result never comes."""
    backlog: int = 180
    """For how long the consumer stands still, again and again: results pile up meanwhile."""
    workers: int = 4
    batch_time: float = 3.0
    """How long a batch that is not full waits for more."""
    each_takes: float = 0.004
    slow: float = 0.25
    """The share of full batches that meet something slow."""
    slowest: float = 28.0
    seed: int = 4

    @property
    def batch(self) -> int:
        """How many results a worker takes at once, at most: a quarter of those of an interval."""
        return max(self.subscriptions // 4, 1)

    @property
    def backlogs(self) -> tuple[tuple[int, int], ...]:
        """When the consumer stands still: from when, and for how long."""
        return tuple((_FIRST_BACKLOG + n * _EVERY, self.backlog) for n in range(_BACKLOGS))

    @property
    def results(self) -> int:
        return self.subscriptions * self.checks

    @property
    def seconds(self) -> int:
        """How long it goes on: until the last wait for a result must be over."""
        return self.checks * self.interval + 300

    def stands_still(self, at: float) -> bool:
        """Say whether nobody consumes at a time."""
        return any(begins <= at < begins + lasts for begins, lasts in self.backlogs)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A result as it reaches the topic."""

    subscription: int
    number: int
    scheduled: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """All results that come, in the order of the topic, and what never comes."""

    arrivals: Sequence[Arrival]
    missing: frozenset[tuple[int, float]]
    """Subscription, and the time for which the check was scheduled."""


def traffic(scenario: Scenario, chance: Chance) -> Traffic:
    """Make the results of a scenario."""
    never = _chosen(scenario, chance)
    arrivals, missing = [], []
    for subscription in range(scenario.subscriptions):
        phase = int(chance.draw() * scenario.interval)
        for number in range(scenario.checks):
            scheduled = phase + number * scenario.interval
            if (subscription, number) in never:
                missing.append((subscription, float(scheduled)))
                continue
            way = _SOONEST + chance.draw() * (_LATEST - _SOONEST)
            arrivals.append(Arrival(subscription, number, scheduled, scheduled + way))
    arrivals.sort(key=lambda arrival: arrival.at)
    return Traffic(arrivals=arrivals, missing=frozenset(missing))


def _chosen(scenario: Scenario, chance: Chance) -> set[tuple[int, int]]:
    """Choose what never comes: as many as the share says, and nothing that no other follows."""
    found: set[tuple[int, int]] = set()
    while len(found) < max(round(scenario.results * scenario.missing), 1):
        subscription = int(chance.draw() * scenario.subscriptions)
        found.add((subscription, 1 + int(chance.draw() * (scenario.checks - 2))))
    return found
