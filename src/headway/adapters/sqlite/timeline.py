"""The file's own time, which no step of the wall clock moves.

Due times and leases must mean the same to every process that shares the file, also after the
wall clock was set by an hour or a year. So the file has a time of its own. It begins as the wall
time at which the file was made, and passes by the machine's steady clock, which all processes of
one boot share. Only across a reboot is the wall clock asked how long the machine was off. If it
was set back meanwhile, or is wrong at boot, the file's time goes on where it was: a delay may then
last up to its whole length again. If it is ahead at boot, the file's time moves ahead with it, and
does not come back when the wall clock is set right: delays and leases from before the reboot end
early by the difference. A warning says so when it is more than a day. Such a jump does not count
for how long records of what was done are kept: see `without_jumps`.

People and the runtime keep to the wall time; a `Moment` converts between the two.
"""

import logging
import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headway.adapters.sqlite.rows import instant, seconds
from headway.ports.clock import Clock, ClockReading

_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_LOG = logging.getLogger("headway")
_LONGEST_OFF = 86_400.0
"""Seconds for which a machine may have been off before records are kept for longer."""
_MARK_EVERY = 60.0
_TOLERANCE = 0.1

_READ = "select boot, ahead, wall, marked from headway_time"
_WRITE = (
    "insert or replace into headway_time (only, boot, ahead, wall, marked) values (1, ?, ?, ?, ?)"
)
_JUMPED = "insert into headway_jumps (began, ended) values (?, ?)"
_JUMPS = "select began, ended from headway_jumps order by ended desc"


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant, by the clock of this process and by the time of the file."""

    now: datetime
    """By the clock of the process."""
    ahead: float = 0.0
    """Seconds by which the time of the file is ahead of that, in whole microseconds."""

    @property
    def at(self) -> float:
        """The same by the time of the file."""
        return seconds(self.now) + self.ahead

    def stored(self, when: datetime) -> float:
        """Convert a time of this process to the time of the file."""
        return seconds(when) + self.ahead

    def shown(self, at: float) -> datetime:
        """Convert a time of the file to the time of this process; at most to what a date can be."""
        try:
            return instant(at - self.ahead)
        except OverflowError:
            return _FIRST if at < 0 else _LAST


class Timeline:
    """The time of one file, as one process reads it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead: float | None = None
        """Of the file's time, compared to the steady clock; None: no file was opened yet."""
        self._ahead_of_now = 0.0
        self._marked = 0.0

    def moment(self) -> Moment:
        reading = self._clock.read()
        if self._ahead is None:
            return Moment(reading.now)
        ahead = self._ahead + reading.steady - seconds(reading.now)
        # Clocks cannot be read more exactly; and a time that is stored has to come back the same.
        if abs(ahead - self._ahead_of_now) > _TOLERANCE:
            self._ahead_of_now = round(ahead, 6)
        return Moment(reading.now, self._ahead_of_now)

    def join(self, connection: sqlite3.Connection) -> None:
        """Learn the time of a file that was just opened; begin it, or carry it over a reboot."""
        if self._is_known(connection):
            return
        connection.execute("begin immediate")
        try:
            if not self._is_known(connection):  # another process may have been quicker
                self._begin(connection)
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise

    def mark(self, connection: sqlite3.Connection) -> None:
        """Note once a minute, inside a write transaction, what a reboot has to go on from."""
        if self._ahead is None:
            return
        reading = self._clock.read()
        if reading.steady - self._marked >= _MARK_EVERY:
            self._write(connection, reading, self._ahead)

    def _is_known(self, connection: sqlite3.Connection) -> bool:
        row = connection.execute(_READ).fetchone()
        if row is None:
            return False
        boot, ahead, _, marked = row
        reading = self._clock.read()  # after the row: nothing was marked later than this
        # Where boots have no names, one is over when its seconds start again.
        if boot != reading.boot or reading.steady + ahead < marked - _TOLERANCE:
            return False
        self._ahead = ahead
        return True

    def _begin(self, connection: sqlite3.Connection) -> None:
        row = connection.execute(_READ).fetchone()
        reading = self._clock.read()
        if row is None:
            at = reading.wall
        else:
            _, _, wall, marked = row
            at = marked + max(reading.wall - wall, 0.0)
            if at - marked > _LONGEST_OFF:
                connection.execute(_JUMPED, (marked, at))
                _LOG.warning(
                    "The wall clock says that this machine was off for %s. Events that were "
                    "delayed for less are due now. If the wall clock was wrong at boot, they come "
                    "too early. Records of what was done are kept as if it had been off for a day.",
                    timedelta(seconds=round(at - marked)),
                )
        self._write(connection, reading, at - reading.steady)

    def _write(self, connection: sqlite3.Connection, reading: ClockReading, ahead: float) -> None:
        at = ahead + reading.steady
        connection.execute(_WRITE, (reading.boot, ahead, reading.wall, at))
        self._ahead, self._marked = ahead, reading.steady


def without_jumps(connection: sqlite3.Connection, before: float) -> float:
    """Move a time of the file back by what reboots may have added to it wrongly since then.

    A machine that was off for a month is not told from one whose wall clock was a month ahead when
    it booted. So of a longer jump only a day counts.
    """
    last = before
    for began, ended in connection.execute(_JUMPS).fetchall():
        if last < ended:
            last -= ended - began - _LONGEST_OFF
    return last
