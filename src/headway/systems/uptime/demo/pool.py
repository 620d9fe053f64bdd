"""A pool of workers as the consumer has it: batches overtake one another, offsets do not.

Batches are made in the order of the topic, and each goes to whoever is free. One that meets
something slow is overtaken by those after it. Only so many batches may be on their way at once,
counted from the oldest one that is not done: that is how far anything can be overtaken.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headway.clock import Chance
from headway.systems.uptime.demo.scenario import Arrival, Scenario

_AHEAD = 2
"""Batches on their way for each worker."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Results that one worker processes together."""

    offset: int
    """Of its first result in the topic."""
    arrivals: Sequence[Arrival]
    done: float
    """When it is processed."""


def batches(scenario: Scenario, arrivals: Sequence[Arrival], chance: Chance) -> list[Batch]:
    """Let the pool process all results; the batches come in the order in which they are done."""
    free = [0.0] * scenario.workers
    ends: list[float] = []
    made = []
    for offset, some, ready in _filled(scenario, arrivals):
        oldest = len(ends) - _AHEAD * scenario.workers
        window = max(ends[: oldest + 1], default=0.0) if oldest >= 0 else 0.0
        begins = _running(scenario, max(ready, heapq.heappop(free), window))
        takes = len(some) * scenario.each_takes
        if chance.draw() < scenario.slow * len(some) / scenario.batch:
            takes += scenario.slowest * (0.2 + 0.8 * chance.draw())
        ends.append(begins + takes)
        heapq.heappush(free, begins + takes)
        made.append(Batch(offset, some, begins + takes))
    return sorted(made, key=lambda batch: (batch.done, batch.offset))


def _filled(
    scenario: Scenario, arrivals: Sequence[Arrival]
) -> Iterator[tuple[int, Sequence[Arrival], float]]:
    """Give batches in the order of the topic, each with the time when it is full or old enough."""
    begin = 0
    while begin < len(arrivals):
        opened = _running(scenario, arrivals[begin].at)
        closes = opened + scenario.batch_time
        end = begin + 1
        while end < len(arrivals) and end - begin < scenario.batch:
            if _running(scenario, arrivals[end].at) > closes:
                break
            end += 1
        full = end - begin == scenario.batch
        ready = _running(scenario, arrivals[end - 1].at) if full else closes
        yield begin, arrivals[begin:end], ready
        begin = end


def _running(scenario: Scenario, time: float) -> float:
    """Give the first moment from a time on at which the consumer runs."""
    for begins, lasts in scenario.backlogs:
        if begins <= time < begins + lasts:
            return float(begins + lasts)
    return time


class Progress:
    """How far the topic is processed: offsets that are not done hold up all after them."""

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        self._arrivals = arrivals
        self._done = bytearray(len(arrivals))
        self._lowest = 0

    def take(self, batch: Batch) -> None:
        """Count a batch as processed."""
        end = batch.offset + len(batch.arrivals)
        self._done[batch.offset : end] = b"\1" * len(batch.arrivals)
        while self._lowest < len(self._done) and self._done[self._lowest]:
            self._lowest += 1

    def caught_up(self, now: float) -> float | None:
        """Say before which time nothing is left unprocessed. None: nothing at all is."""
        if self._lowest == len(self._arrivals):
            return None
        oldest = self._arrivals[self._lowest].at
        return oldest if oldest <= now else None
