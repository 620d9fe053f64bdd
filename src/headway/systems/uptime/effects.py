"""What a result does to its monitor: pure, decided inside the transaction that writes it.

A result is applied only where its time is after the last one applied. One that comes after a miss
was made up for it takes the miss back, whoever made it up.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from headway.systems.uptime.detecting import Incident, follow
from headway.systems.uptime.monitors import Monitor
from headway.systems.uptime.results import CheckResult

MOST_MISSES = 1_000
"""Made up at once. More than that is an outage of the checkers, or a clock that is wrong."""


class Missing(msgspec.Struct, frozen=True, gc=False):
    """Scheduled times from `first` to `last` for which no result came."""

    first: int
    last: int
    step: int

    @property
    def count(self) -> int:
        return max((self.last - self.first) // self.step + 1, 0)

    def times(self) -> range:
        return range(self.first, self.last + 1, self.step)


class Effect(msgspec.Struct, frozen=True):
    """A result whose turn has come."""

    result: CheckResult
    missing: Missing | None = None
    """Given up before it: misses are made up for these."""
    detect: bool = False
    """Nobody kept the order: what is missing is found by what was applied last."""
    passed: bool = False
    """It goes on without its order: the engine of sequences is away, or the feature is off."""


class Outcome(StrEnum):
    """What became of a result."""

    APPLIED = "applied"
    RETRACTED = "retracted"
    """It came late: the miss that was made up for it is taken back."""
    DUPLICATE = "duplicate"
    GONE = "gone"
    """Its subscription or detector was deleted meanwhile."""


class Change(msgspec.Struct, frozen=True):
    """What the store has to write for one effect."""

    outcome: Outcome
    monitor: Monitor | None = None
    misses: tuple[int, ...] = ()
    """Scheduled times for which a miss is recorded."""
    incident: Incident | None = None


def settle(monitor: Monitor | None, effect: Effect, is_missed: Callable[[int], bool]) -> Change:
    """Say what a result does. `is_missed` tells of a miss that stands in the store."""
    if monitor is None or monitor.detector is None:
        return Change(Outcome.GONE)
    at, last = effect.result.scheduled_check_time_ms, monitor.last_update_ms
    if last is not None and at <= last:
        outcome = Outcome.RETRACTED if is_missed(at) else Outcome.DUPLICATE
        return Change(outcome, replace(monitor, passed=monitor.passed or effect.passed))
    missing = detected(monitor, at) if effect.detect else effect.missing
    detector, incident = follow(monitor.detector, effect.result)
    after = replace(
        monitor,
        detector=detector,
        last_update_ms=at,
        applied=monitor.applied + 1,
        passed=monitor.passed or effect.passed,
    )
    return Change(Outcome.APPLIED, after, _to_make_up(missing, last), incident)


def detected(monitor: Monitor, at: int) -> Missing | None:
    """Find what is missing between the last result applied and one that is to be."""
    step, last = monitor.subscription.interval_ms, monitor.applied_until_ms
    if last is None:
        return None
    began = monitor.subscription.interval_since_ms
    count = min((at - last) // step - 1, (at - began) // step)
    return Missing(at - count * step, at - step, step) if count > 0 else None


def _to_make_up(missing: Missing | None, last: int | None) -> tuple[int, ...]:
    """Give the latest of what is missing, without what was applied meanwhile."""
    if missing is None:
        return ()
    times = missing.times()[-MOST_MISSES:]
    return tuple(time for time in times if last is None or time > last)
