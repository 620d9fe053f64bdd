"""What is known of one key of a sequence: how far it is, who is at it, and what it holds."""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec.structs import replace

HIGHEST = 2**52 - 1
"""The highest position: engines may keep them as numbers with a point, and divide them."""
_MOST_REMEMBERED = 32
_NUMBERS = 2**42


def in_epoch(epoch: int, number: int) -> int:
    """Give the position of a number whose numbering began anew: later epochs come after.

    The first offer of an epoch says `begins=in_epoch(epoch, first)`, so that nothing is missed
    between the two numberings.

    >>> in_epoch(1, 0) > in_epoch(0, 1_000_000)
    True
    """
    if not 0 <= number < _NUMBERS or not 0 <= epoch < HIGHEST // _NUMBERS:
        raise ValueError(f"epoch={epoch}, number={number} are not accepted: they are too large")
    return epoch * _NUMBERS + number


class Why(StrEnum):
    """Why a gap was given up."""

    TIMEOUT = "timeout"
    """It was waited for as long as the schedule says, or as long as is ever waited."""
    BREAKER = "breaker"
    """Too many results were held behind it."""
    TOO_OLD = "too old"
    """A result was held behind it for as long as any may be."""
    OPERATOR = "operator"
    """A person drained the key."""


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Positions that were given up: from `first` to `last`, one at each `step`."""

    first: int
    last: int
    step: int
    why: Why
    fill: bool = True
    """Misses are to be made up for them; else they are skipped."""

    @property
    def count(self) -> int:
        return (self.last - self.first) // self.step + 1

    def positions(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1, self.step))


class Flight(msgspec.Struct, frozen=True, gc=False):
    """The one position of a key that somebody is at."""

    position: int
    token: str
    until: datetime
    """Afterwards somebody else may take it over; until somebody does, it is still theirs."""


class Held(msgspec.Struct, frozen=True, gc=False):
    """A result that waits for its turn. What is in it is the engine's affair."""

    position: int
    step: int
    begins: int
    since: datetime
    attempts: int = 0
    """How often it was handed out."""


class Jump(msgspec.Struct, frozen=True, gc=False):
    """All gaps below a position are given up."""

    to: int
    why: Why


class Missed(msgspec.Struct, frozen=True, gc=False):
    """Positions that were handed out as given up, and are remembered for those that come late."""

    first: int
    last: int
    step: int
    until: datetime

    def has(self, position: int) -> bool:
        return self.first <= position <= self.last and (position - self.first) % self.step == 0

    @property
    def before(self) -> int:
        """The position with which they were handed out."""
        return self.last + self.step


class PartlyLoadedError(Exception):
    """A decision needs every held result of a key, and an engine has loaded only some."""


class KeyState(msgspec.Struct, frozen=True):
    """All that is known of one key. An idle key has a marker and nothing else.

    An engine may load only some of the held results: those up to the position that is decided
    about, the next one, the last one, and those that are named (`named`). It says how many more
    there are, and if a decision raises `PartlyLoadedError`, it loads all and decides again.
    """

    marker: int | None = None
    """The last position that was applied; it only moves forward."""
    flight: Flight | None = None
    held: tuple[Held, ...] = ()
    """By position: the first, the last, and at least those that a decision is about."""
    more: int = 0
    """How many others are held, which were not loaded."""
    gap_since: datetime | None = None
    """Since when the key stands before the gap that follows its marker."""
    jump: Jump | None = None
    paused_until: datetime | None = None
    """What failed was handed back: nothing is handed out before this."""
    parked: bool = False
    missed: tuple[Missed, ...] = ()

    @property
    def count(self) -> int:
        """How many results are held."""
        return len(self.held) + self.more

    @property
    def named(self) -> frozenset[int]:
        """Positions of held results that a decision may ask for, wherever they are."""
        before = {missed.before for missed in self.missed}
        return frozenset(before if self.flight is None else before | {self.flight.position})

    def every(self) -> tuple[Held, ...]:
        """Give all held results.

        Raises:
            PartlyLoadedError: Only some of them were loaded.
        """
        if self.more:
            raise PartlyLoadedError
        return self.held

    def shifted(self, by: timedelta) -> "KeyState":
        """Move all times of the key, to read them by another clock."""
        flight, gap, paused = self.flight, self.gap_since, self.paused_until
        return replace(
            self,
            flight=None if flight is None else replace(flight, until=flight.until + by),
            held=tuple(replace(each, since=each.since + by) for each in self.held),
            gap_since=None if gap is None else gap + by,
            paused_until=None if paused is None else paused + by,
            missed=tuple(replace(each, until=each.until + by) for each in self.missed),
        )

    def is_live(self, now: datetime) -> bool:
        """Say whether somebody is at a position, and has a lease that runs."""
        return self.flight is not None and now < self.flight.until

    def was_started(self, now: datetime) -> bool:
        """Say whether a worker started the missing result and lost its lease.

        The result arrived, so the source delivers it again.
        """
        flight = self.flight
        return flight is not None and now >= flight.until and not self.is_applied(flight.position)

    def is_applied(self, position: int) -> bool:
        return self.marker is not None and position <= self.marker

    def is_late(self, position: int, now: datetime) -> bool:
        """Say whether a position was given up and may still be taken back."""
        return any(missed.has(position) and now < missed.until for missed in self.missed)

    def unfinished(self) -> Held | None:
        """Give the held result that was handed out with a gap, and that nobody has completed.

        Whoever had it may have made up the misses and applied it before dying. So it goes first
        until it is completed, and what was given up with it stays given up.
        """
        for missed in reversed(self.missed):
            if not self.is_applied(missed.before):
                found = self.find(missed.before)
                if found is not None:
                    return found
        return None

    def head(self) -> Held:
        """Give the held result that is handed out next; there must be one."""
        return self.unfinished() or self.held[0]

    def find(self, position: int) -> Held | None:
        """Give the held result of a position."""
        at = bisect_left(self.held, position, key=_position)
        found = self.held[at] if at < len(self.held) else None
        return found if found is not None and found.position == position else None

    def missing_before(self, position: int, step: int, begins: int) -> int:
        """Count the positions that are missing between the marker and a result.

        The result's own step says where its predecessors are: `(position - marker) // step - 1`
        of them. What is below `begins` belongs to an older numbering, or to another interval, and
        is never missed. Without a marker nothing is known to be missing.
        """
        if self.marker is None:
            return 0
        after_marker = (position - self.marker) // step - 1
        return max(min(after_marker, (position - begins) // step), 0)

    def is_ready(self, held: Held) -> bool:
        """Say whether it is the turn of the held result that comes next."""
        if self.jump is not None and held.position <= self.jump.to:
            return True
        # What is held and applied is late: it would have been dropped otherwise.
        return self.is_applied(held.position) or not self.missing_before(
            held.position, held.step, held.begins
        )

    def gap_before(self, held: Held, *, fill: bool) -> Gap | None:
        """Give the positions that are given up when a held result is handed out."""
        count = self.missing_before(held.position, held.step, held.begins)
        if not count or self.jump is None or held.position > self.jump.to:
            return None
        first = held.position - count * held.step
        return Gap(first, held.position - held.step, held.step, self.jump.why, fill)

    def with_held(self, held: Held) -> "KeyState":
        """Put a result among those that are held, in the place of one with its position."""
        at = bisect_left(self.held, held.position, key=_position)
        after = at + (at < len(self.held) and self.held[at].position == held.position)
        return replace(self, held=(*self.held[:at], held, *self.held[after:]))

    def without(self, position: int) -> "KeyState":
        """Take a held result out."""
        return replace(self, held=tuple(h for h in self.held if h.position != position))

    def moved_to(self, marker: int, now: datetime) -> "KeyState":
        """Move the marker forward. What is held and has been applied by now is dropped."""
        if self.is_applied(marker):
            return self
        missed = tuple(m for m in self.missed if now < m.until or marker < m.before)
        kept = tuple(h for h in self.held if h.position > marker or self.is_late(h.position, now))
        jump = self.jump if self.jump is not None and self.jump.to > marker else None
        return replace(
            self,
            marker=marker,
            held=kept,
            jump=jump,
            gap_since=None,
            parked=False,
            missed=missed,
        )

    def remembering(self, gap: Gap, now: datetime, until: datetime) -> "KeyState":
        """Remember positions that are given up, and forget what is too long ago."""
        first, kept = gap.first, []
        for missed in self.missed:
            if (missed.last, missed.step) == (gap.last, gap.step):
                first = missed.first  # handed out before, when the marker may have been lower
            elif now < missed.until:
                kept.append(missed)
        kept.append(Missed(first, gap.last, gap.step, until))
        return replace(self, missed=tuple(kept[-_MOST_REMEMBERED:]))

    def retracted(self, position: int) -> "KeyState":
        """Forget one position that was given up: its result has come."""
        kept: list[Missed] = []
        for missed in self.missed:
            if not missed.has(position):
                kept.append(missed)
                continue
            if missed.first < position:
                kept.append(replace(missed, last=position - missed.step))
            if position < missed.last:
                kept.append(replace(missed, first=position + missed.step))
        return replace(self, missed=tuple(kept))


def changes(before: KeyState, after: KeyState) -> tuple[list[Held], list[int]]:
    """Say which held results an engine has to write, and which positions it has to remove."""
    if before.held is after.held:
        return [], []
    old, new = ({held.position: held for held in state.held} for state in (before, after))
    written = [held for held in after.held if old.get(held.position) != held]
    return written, [position for position in old if position not in new]


def _position(held: Held) -> int:
    return held.position
