"""Finishing units: many in one commit, each all or nothing.

Nearly always every unit of a group is in order. So the group is first tried as a whole, with a few
statements for all of it. If anything is not as expected, that is undone, and the units are carried
out one by one, each in a savepoint of its own, which says what became of which.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from headway.adapters.sqlite import letters, publishing, records, taking
from headway.adapters.sqlite.bell import Bell
from headway.adapters.sqlite.documents import Changes
from headway.adapters.sqlite.guard import Guard, UndoneError
from headway.adapters.sqlite.savepoints import hold, release, undo
from headway.adapters.sqlite.writer import Writer
from headway.core.errors import KeyTakenError, TransactionEndedError
from headway.ports.bus import Done
from headway.ports.clock import Clock
from headway.ports.commit import COMMITTED, DUPLICATE, LOST, Finish, Outcome, Unit
from headway.ports.records import DoneRecord

_OF_VALUES = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


class _UnexpectedError(Exception):
    """The group as a whole does not do."""


class _RefusedError(Exception):
    """A write or a body of one unit raised."""


class SqliteFinisher:
    """Carries units out on the writer's thread."""

    def __init__(self, writer: Writer, bell: Bell, clock: Clock) -> None:
        self._writer = writer
        self._bell = bell
        self._clock = clock

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        if not units:
            return []
        finishes = await self._writer.run(_Group(units, self._clock.now(), self._writer.guard))
        if any(unit.outgoing or not isinstance(unit.then, Done) for unit in units):
            self._bell.ring()
        return finishes


class _Group:
    """Units that are finished together."""

    def __init__(self, units: Sequence[Unit], now: datetime, guard: Guard) -> None:
        self._units = units
        self._now = now
        self._guard = guard
        self._refused: dict[int, Finish] = {}
        """Units whose bodies undid the whole transaction: they do not get a second chance."""

    def __call__(self, connection: sqlite3.Connection) -> list[Finish]:
        if any(unit.bodies or unit.resumes for unit in self._units):
            return self._one_by_one(connection)
        hold(connection, "group")
        try:
            finishes = _all_at_once(connection, self._units, self._now)
        except Exception as error:
            if _is_of_the_file(error):
                raise
            # Whose it is comes out when they run one by one.
            undo(connection, "group")
            finishes = self._one_by_one(connection)
        release(connection, "group")
        return finishes

    def _one_by_one(self, connection: sqlite3.Connection) -> list[Finish]:
        finishes = []
        for index, unit in enumerate(self._units):
            try:
                finish = self._refused.get(index) or self._one(connection, unit)
            except UndoneError as error:
                refusal = TransactionEndedError(str(error))
                refusal.__cause__ = error.__cause__
                self._refused[index] = Finish(Outcome.REFUSED, error=refusal)
                raise
            finishes.append(finish)
        return finishes

    def _one(self, connection: sqlite3.Connection, unit: Unit) -> Finish:
        if not taking.is_ours(connection, unit.delivery):
            return LOST
        generation = unit.delivery.travel.generation
        new = None if unit.resumes else unit.record
        try:
            if new is not None and records.is_duplicate(connection, new, generation):
                taking.settle(connection, unit.delivery, Done())
                return DUPLICATE
        except KeyTakenError as taken:
            return Finish(Outcome.REFUSED, error=taken)
        hold(connection, "unit")
        try:
            skipped = self._effects(connection, unit)
        except _RefusedError as refusal:
            undo(connection, "unit")
            release(connection, "unit")
            error = refusal.__cause__
            return Finish(Outcome.REFUSED, error=error if isinstance(error, Exception) else None)
        release(connection, "unit")
        if unit.record is not None:
            records.write(connection, [_row(unit, unit.record)])
            if unit.resumes:
                records.take_down_as_sent(connection, [unit.record.key])
        taking.settle(connection, unit.delivery, unit.then)
        return Finish(Outcome.COMMITTED, skipped=skipped) if skipped else COMMITTED

    def _effects(self, connection: sqlite3.Connection, unit: Unit) -> int:
        try:
            changes = Changes(connection, unit.writes)
            skipped = changes.apply(unit.writes)
            changes.store()
            publishing.publish(connection, unit.outgoing, self._now)
            if unit.letter is not None:
                letters.write(connection, unit.failed_queue, [unit.letter])
        except Exception as error:
            if _is_of_the_file(error):
                raise
            raise _RefusedError from error
        for body in unit.bodies:
            try:
                self._guard.run(body, connection)
            except UndoneError:
                raise
            except Exception as error:
                raise _RefusedError from error
        return skipped


def _is_of_the_file(error: Exception) -> bool:
    """Tell trouble with the file, nobody's fault, from values that SQLite does not take."""
    return isinstance(error, sqlite3.Error) and not isinstance(error, _OF_VALUES)


def _row(unit: Unit, record: DoneRecord) -> tuple[Any, ...]:
    if record.outgoing or record.letter is not None:
        # All of it is in this commit, so nothing is left to be sent.
        record = msgspec.structs.replace(record, outgoing=(), letter=None)
    generation = unit.delivery.travel.generation
    return records.row_of(record, generation, unit.letter, unit.failed_queue)


def _all_at_once(
    connection: sqlite3.Connection, units: Sequence[Unit], now: datetime
) -> list[Finish]:
    """Carry out units of which every single one is in order; else raise."""
    done = [unit.delivery for unit in units if isinstance(unit.then, Done)]
    expected = taking.delete_all(connection, done)
    for unit in units:
        if not isinstance(unit.then, Done):
            expected = expected and taking.settle(connection, unit.delivery, unit.then)
    rows = [_row(unit, unit.record) for unit in units if unit.record is not None]
    if not (expected and records.write(connection, rows)):
        raise _UnexpectedError
    skipped = _write_all(connection, units)
    outgoing = [message for unit in units for message in unit.outgoing]
    if outgoing:
        publishing.publish(connection, outgoing, now)
    for unit in units:
        if unit.letter is not None:
            letters.write(connection, unit.failed_queue, [unit.letter])
    return [Finish(Outcome.COMMITTED, skipped=count) if count else COMMITTED for count in skipped]


def _write_all(connection: sqlite3.Connection, units: Sequence[Unit]) -> list[int]:
    writes = [write for unit in units for write in unit.writes]
    if not writes:
        return [0] * len(units)
    changes = Changes(connection, writes)
    skipped = [changes.apply(unit.writes) for unit in units]
    changes.store()
    return skipped
