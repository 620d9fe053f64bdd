"""Finishing units: many in one commit, each all or nothing.

Nearly always every unit of a group is in order. So the group is first tried as a whole, with a few
statements for all of it. If anything is not as expected, that is undone, and the units are carried
out one by one, each in a savepoint of its own, which says what became of which.

Queues and letters may be in the same file, or elsewhere (store.py): that is the only difference.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from headway.adapters.sqlite import letters, publishing, records, taking
from headway.adapters.sqlite.bell import Bell
from headway.adapters.sqlite.documents import fetch_for, store
from headway.adapters.sqlite.guard import Guard, UndoneError, in_transaction
from headway.adapters.sqlite.savepoints import hold, release, undo
from headway.adapters.sqlite.timeline import Moment, Timeline
from headway.adapters.sqlite.writer import Writer
from headway.core.catalogue import DEFAULT_CLASSIFIER, names_engine
from headway.core.errors import KeyTakenError, TransactionEndedError
from headway.ports.bus import Done, Then, unrouted_types
from headway.ports.commit import COMMITTED, DUPLICATE, LOST, Finish, Outcome, Unit
from headway.ports.records import DoneRecord

_CONFLICT = "OC000_TRANSACTION_CONFLICT"


class _UnexpectedError(Exception):
    """The group as a whole does not do."""


class _RefusedError(Exception):
    """A write or a body of one unit raised."""


class _BodyError(_RefusedError):
    """It was a body that raised."""


class Surroundings(Protocol):
    """What the units of a group have to do with beside their effects and records."""

    def is_ours(self, connection: sqlite3.Connection, unit: Unit) -> bool:
        """Say whether the delivery still belongs to its taker."""
        ...

    def settle(self, connection: sqlite3.Connection, unit: Unit, then: Then) -> None: ...

    def settle_all(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> bool:
        """Settle all; False: some were not ours."""
        ...

    def send(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> frozenset[str]:
        """Send outgoing events and letters; name the types that no queue took."""
        ...

    def write(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> bool:
        """Write the records; False: some were there before."""
        ...


class SameFile:
    """Queues and letters are in the file too, so nothing is left to be done after the commit."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment

    def is_ours(self, connection: sqlite3.Connection, unit: Unit) -> bool:
        return taking.is_ours(connection, unit.delivery)

    def settle(self, connection: sqlite3.Connection, unit: Unit, then: Then) -> None:
        taking.settle(connection, unit.delivery, then, self._moment)
        if unit.resumes and unit.record is not None:
            records.take_down_as_sent(connection, [unit.record.key])

    def settle_all(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> bool:
        done = [unit.delivery for unit in units if isinstance(unit.then, Done)]
        expected = taking.delete_all(connection, done)
        for unit in units:
            if not isinstance(unit.then, Done):
                expected = expected and taking.settle(
                    connection, unit.delivery, unit.then, self._moment
                )
        return expected

    def send(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> frozenset[str]:
        unrouted: frozenset[str] = frozenset()
        outgoing = [message for unit in units for message in unit.outgoing]
        if outgoing:
            taken_by = publishing.publish(connection, outgoing, self._moment)
            unrouted = unrouted_types(outgoing, taken_by)
        for unit in units:
            if unit.letter is not None:
                letters.write(connection, unit.failed_queue, [unit.letter])
        return unrouted

    def write(self, connection: sqlite3.Connection, units: Sequence[Unit]) -> bool:
        rows = [_row(unit, unit.record, self._moment) for unit in units if unit.record is not None]
        return records.write(connection, rows)


class SqliteFinisher:
    """Carries units out on the writer's thread."""

    at_once = 1

    def __init__(self, writer: Writer, bell: Bell, time: Timeline) -> None:
        self._writer = writer
        self._bell = bell
        self._time = time

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        if not units:
            return []
        group = Group(units, self._time, self._writer.guard, SameFile)
        finishes = await self._writer.run(group)
        if any(unit.outgoing or not isinstance(unit.then, Done) for unit in units):
            self._bell.ring()
        return finishes


class Group:
    """Units that are finished together."""

    _moment: Moment
    _surroundings: Surroundings

    def __init__(
        self,
        units: Sequence[Unit],
        time: Timeline,
        guard: Guard,
        surroundings: Callable[[Moment], Surroundings],
    ) -> None:
        self._units = units
        self._time = time
        self._guard = guard
        self._surrounded = surroundings
        self._refused: dict[int, Finish] = {}
        """Units whose bodies undid the whole transaction: they do not get a second chance."""

    def __call__(self, connection: sqlite3.Connection) -> list[Finish]:
        self._moment = self._time.moment()  # not before it is our turn: that may take a while
        self._surroundings = self._surrounded(self._moment)
        if any(unit.bodies or unit.resumes for unit in self._units):
            return self._one_by_one(connection)
        hold(connection, "group")
        try:
            finishes = self._all_at_once(connection)
        except Exception as error:  # whatever a value of somebody's raises when it is stored
            if _is_of_the_file(error):
                raise
            # Whose it is comes out when they run one by one.
            undo(connection, "group")
            finishes = self._one_by_one(connection)
        release(connection, "group")
        return finishes

    def _all_at_once(self, connection: sqlite3.Connection) -> list[Finish]:
        """Carry out units of which every single one is in order; else raise."""
        expected = self._surroundings.settle_all(connection, self._units)
        if not (expected and self._surroundings.write(connection, self._units)):
            raise _UnexpectedError
        skipped = _write_all(connection, self._units)
        unrouted = self._surroundings.send(connection, self._units)
        if unrouted:
            return [
                Finish(Outcome.COMMITTED, skipped=count, unrouted=unit.unrouted(unrouted))
                for unit, count in zip(self._units, skipped, strict=True)
            ]
        return [
            Finish(Outcome.COMMITTED, skipped=count) if count else COMMITTED for count in skipped
        ]

    def _one_by_one(self, connection: sqlite3.Connection) -> list[Finish]:
        finishes = []
        for index, unit in enumerate(self._units):
            try:
                finish = self._refused.get(index) or self._one(connection, unit)
            except UndoneError as error:
                refusal = TransactionEndedError(str(error))
                refusal.__cause__ = error.__cause__
                self._refused[index] = Finish(Outcome.REFUSED, error=refusal, of_body=True)
                raise
            finishes.append(finish)
        return finishes

    def _one(self, connection: sqlite3.Connection, unit: Unit) -> Finish:
        if not self._surroundings.is_ours(connection, unit):
            return LOST
        generation = unit.delivery.travel.generation
        new = None if unit.resumes else unit.record
        try:
            if new is not None and records.is_duplicate(connection, new, generation, self._moment):
                self._surroundings.settle(connection, unit, Done())
                return DUPLICATE
        except KeyTakenError as taken:
            return Finish(Outcome.REFUSED, error=taken)
        hold(connection, "unit")
        try:
            skipped, unrouted = self._effects(connection, unit)
        except _RefusedError as refusal:
            undo(connection, "unit")
            release(connection, "unit")
            error = refusal.__cause__
            return Finish(
                Outcome.REFUSED,
                error=error if isinstance(error, Exception) else None,
                of_body=isinstance(refusal, _BodyError),
            )
        release(connection, "unit")
        if unit.record is not None:
            self._surroundings.write(connection, [unit])
        self._surroundings.settle(connection, unit, unit.then)
        if skipped or unrouted:
            return Finish(Outcome.COMMITTED, skipped=skipped, unrouted=unrouted)
        return COMMITTED

    def _effects(self, connection: sqlite3.Connection, unit: Unit) -> tuple[int, frozenset[str]]:
        try:
            changes = fetch_for(connection, unit.writes)
            skipped = changes.apply(unit.writes)
            store(connection, changes)
            unrouted = self._surroundings.send(connection, [unit])
        except Exception as error:  # whatever a value raises: it is the fault of this unit alone
            if _is_of_the_file(error):
                raise
            raise _RefusedError from error
        for body in unit.bodies:
            try:
                self._guard.run(body, connection)
            except UndoneError:
                raise
            except Exception as error:  # a body is the user's own: it may raise anything
                if not in_transaction(connection):
                    raise  # SQLite gave up all of it: a full disk, for one
                raise _BodyError from error
        return skipped, unrouted


def _is_of_the_file(error: Exception) -> bool:
    """Tell trouble with the file, nobody's fault, from values that SQLite does not take."""
    if not isinstance(error, sqlite3.Error):
        return False
    return names_engine(error) or DEFAULT_CLASSIFIER.classify(error).error_type == _CONFLICT


def _row(unit: Unit, record: DoneRecord, moment: Moment) -> tuple[Any, ...]:
    if record.outgoing or record.letter is not None:
        # All of it is in this commit, so nothing is left to be sent.
        record = msgspec.structs.replace(record, outgoing=(), letter=None)
    generation = unit.delivery.travel.generation
    return records.row_of(record, generation, moment, unit.letter, unit.failed_queue)


def _write_all(connection: sqlite3.Connection, units: Sequence[Unit]) -> list[int]:
    writes = [write for unit in units for write in unit.writes]
    if not writes:
        return [0] * len(units)
    changes = fetch_for(connection, writes)
    skipped = [changes.apply(unit.writes) for unit in units]
    store(connection, changes)
    return skipped
