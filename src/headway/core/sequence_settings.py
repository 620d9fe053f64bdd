"""How long the results of a key wait for one that is missing, and what becomes of it then."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from itertools import accumulate
from typing import Self, TypeVar

from headway.core.errors import ConfigurationError

E = TypeVar("E", bound=StrEnum)

DEFAULT_NAME = "results"
"""Of a resequencer, for the library and for `headway order` alike."""
_ZERO = timedelta()
_PART = 4
_DURATION = "use a duration, such as timedelta(seconds=30)"


class OnGap(StrEnum):
    """What becomes of a gap that is given up."""

    BACKFILL = "backfill"
    """The positions are handed out as missed, and the results behind them are released."""
    SKIP = "skip"
    """The results behind it are released, and nothing is made up."""
    PARK = "park"
    """The key stands still until the missing result comes or a person drains it."""


class OnLate(StrEnum):
    """What becomes of a result that comes after its gap was given up."""

    RETRACT = "retract"
    """It is handed out as late: whoever made up a miss takes it back."""
    DROP = "drop"
    """It is a duplicate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceSettings:
    """The times and limits of a sequencer. All times may be scaled by one factor."""

    schedule: tuple[timedelta, ...] = tuple(timedelta(seconds=s) for s in (10, 20, 30, 60, 60))
    """The waits from one look at a gap to the next; after the last one it is given up."""
    breaker: int = 10
    """So many results held behind a true gap end the wait at once."""
    lease: timedelta = timedelta(seconds=30)
    """How long a position may be in flight before somebody else takes it over."""
    hold_at_most: timedelta = timedelta(minutes=60)
    """A gap before a result that is held for so long is given up, whatever the source says."""
    gap_at_most: timedelta = timedelta(minutes=30)
    """The longest wait for a gap while the source is ahead of us, or while a result that a worker
    started and did not finish has not been delivered again."""
    breaker_at_most: int = 100
    """So many held results end the wait even while we are behind the source."""
    remember: timedelta = timedelta(hours=24)
    """How long a late result is told from a duplicate."""
    on_gap: OnGap = OnGap.BACKFILL
    on_late: OnLate = OnLate.RETRACT

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", _waits(self.schedule))
        object.__setattr__(self, "on_gap", _one_of("on_gap", OnGap, self.on_gap))
        object.__setattr__(self, "on_late", _one_of("on_late", OnLate, self.on_late))
        self._refuse_other_kinds()
        if not self.schedule or min(self.schedule) <= _ZERO:
            raise ConfigurationError(
                f"schedule={_shown(self.schedule)} is not accepted: use at least one wait, and "
                "none of no time"
            )
        for name in ("lease", "remember"):
            if getattr(self, name) <= _ZERO:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)} is not accepted: use more than no time"
                )
        if self.breaker < 1:
            raise ConfigurationError(
                f"breaker={self.breaker} is not accepted: use a whole number from 1"
            )
        if self.breaker_at_most < self.breaker:
            raise ConfigurationError(
                f"breaker_at_most={self.breaker_at_most} is not accepted: use {self.breaker} "
                "(breaker) or more"
            )
        self._refuse_below("gap_at_most", self.give_up_after, "the sum of schedule")
        self._refuse_below("hold_at_most", self.gap_at_most, "gap_at_most")
        if self.on_gap is OnGap.SKIP and self.on_late is OnLate.RETRACT:
            raise ConfigurationError(
                "on_late=retract is not accepted with on_gap=skip: nothing is made up that could "
                "be taken back; use on_late=drop"
            )

    @property
    def give_up_after(self) -> timedelta:
        """How long a gap is waited for: the sum of the schedule.

        >>> SequenceSettings().give_up_after
        datetime.timedelta(seconds=180)
        """
        return sum(self.schedule, _ZERO)

    @property
    def looks(self) -> tuple[timedelta, ...]:
        """The ages of a gap at which it is looked at.

        >>> [look // timedelta(seconds=1) for look in SequenceSettings().looks]
        [10, 30, 60, 120, 180]
        """
        return tuple(accumulate(self.schedule))

    @property
    def first_look_beyond(self) -> timedelta:
        """How soon a gap is looked at again whose time is over, while we are behind the source.

        A healthy source is always some seconds ahead, so this is short; each wait after it is
        twice as long, up to the last one of the schedule.

        >>> SequenceSettings().first_look_beyond
        datetime.timedelta(seconds=2, microseconds=500000)
        """
        return max(self.schedule[0] / _PART, timedelta.resolution)

    def scaled(self, factor: float) -> Self:
        """Give the same with all times multiplied.

        >>> SequenceSettings().scaled(0.001).give_up_after
        datetime.timedelta(microseconds=180000)
        """
        return replace(
            self,
            schedule=tuple(wait * factor for wait in self.schedule),
            lease=self.lease * factor,
            hold_at_most=self.hold_at_most * factor,
            gap_at_most=self.gap_at_most * factor,
            remember=self.remember * factor,
        )

    def _refuse_other_kinds(self) -> None:
        for name in ("lease", "hold_at_most", "gap_at_most", "remember"):
            if not isinstance(getattr(self, name), timedelta):
                raise _refused(name, getattr(self, name), _DURATION)
        for name in ("breaker", "breaker_at_most"):
            if type(getattr(self, name)) is not int:
                raise _refused(name, getattr(self, name), "use a whole number from 1")

    def _refuse_below(self, name: str, least: timedelta, what: str) -> None:
        if getattr(self, name) < least:
            raise ConfigurationError(
                f"{name}={getattr(self, name)} is not accepted: use {least} ({what}) or more"
            )


def _waits(schedule: object) -> tuple[timedelta, ...]:
    waits = tuple(schedule) if isinstance(schedule, Iterable) else (None,)
    if not all(isinstance(wait, timedelta) for wait in waits):
        cure = "use durations, such as (timedelta(seconds=5), timedelta(seconds=10))"
        raise _refused("schedule", schedule, cure)
    return waits


def _one_of(name: str, choices: type[E], given: object) -> E:
    """Give the choice that is meant: its text will do, since engines compare what it is."""
    for choice in choices:
        if given == choice:
            return choice
    names = ", ".join(f"{choices.__name__}.{choice.name}" for choice in choices)
    raise _refused(name, given, f"use one of {names}")


def _refused(name: str, value: object, cure: str) -> ConfigurationError:
    return ConfigurationError(f"{name}={value!r} is not accepted: {cure}")


def _shown(schedule: tuple[timedelta, ...]) -> str:
    return ", ".join(f"{wait.total_seconds():g} s" for wait in schedule) or "()"
