"""Committing units: many in one transaction, each all or nothing.

Nearly always every unit of a group is in order. So the group is first tried as a whole, with a few
statements for all of it; a unit whose condition is lost is left out. If a key is known already or a
value cannot be stored, the units are carried out one by one, each in a transaction of its own,
which says what became of which. So they are if somebody keeps a document locked, and so are units
with bodies: theirs is the last word before COMMIT.

Every transaction takes its locks in the same order: keys of records, then documents that are there,
then records of earlier failures, then new documents; and each of these sorted. READ COMMITTED is
enough: what a write depends on is locked before it is read, or it is not there, which the insert
makes sure of.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import asyncpg
import msgspec

from headway.adapters.postgres import document_rows, records
from headway.adapters.postgres.bodies import run_bodies
from headway.adapters.postgres.link import AtCommitError, Link, MeanwhileError, is_gone
from headway.adapters.postgres.refusals import is_of_values
from headway.adapters.postgres.values import check_id
from headway.core.changes import Changes, Key
from headway.core.errors import KeyTakenError
from headway.core.event import FIRST_GENERATION
from headway.core.letter import requeued_letter
from headway.core.writes import Document, target
from headway.ports.commit import COMMITTED, DUPLICATE, Finish, Outcome, Unit

_RERUNS = 2
"""Of a unit in whose body the connection was lost. A body that ends it every time is refused."""


class _UnexpectedError(Exception):
    """The group as a whole does not do."""


class _RefusedError(Exception):
    """A write or a body of one unit raised; the transaction is undone."""


class _BodyError(_RefusedError):
    """It was a body that raised."""


class _LostError(_BodyError):
    """The connection was lost while a body ran: the fault of the network, or of the body."""


@dataclass(slots=True)
class _Effects:
    """What the writes of units make of documents."""

    before: dict[Key, Document]
    now: dict[Key, Document] = field(default_factory=dict)
    after: dict[Key, Document] = field(default_factory=dict)

    def apply(self, unit: Unit) -> int:
        """Apply the writes of one unit, all or none; say how many documents were there."""
        keys = {(write.collection, target(write)) for write in unit.writes}
        changes = Changes({key: self.now[key] for key in keys if key in self.now})
        skipped = changes.apply(unit.writes)
        self.now.update(changes.changed)
        self.after.update(changes.changed)
        return skipped


async def commit(link: Link, units: Sequence[Unit]) -> list[Finish]:
    """Store effects and records, each unit as one; nothing is sent and nothing is settled."""
    finishes: list[Finish] = []
    for with_bodies, some in groupby(units, key=lambda unit: bool(unit.bodies)):
        together = list(some)
        if with_bodies:
            finishes += [await _alone(link, unit) for unit in together]
        else:
            finishes += await _group(link, together)
    return finishes


async def _group(link: Link, units: Sequence[Unit]) -> list[Finish]:
    if len(units) > 1:
        try:
            return await link.run(lambda connection: _together(connection, units))
        except Exception as error:  # whatever a value of somebody's raises when it is stored
            if not (is_of_values(error) or isinstance(error, asyncpg.LockNotAvailableError)):
                raise
    # Whose it is comes out when they run one by one.
    return [await _alone(link, unit) for unit in units]


async def _together(connection: Any, units: Sequence[Unit]) -> list[Finish]:
    """Carry out units of which none is known; else raise."""
    new = [unit for unit in units if not unit.resumes]
    if not await records.write(connection, [_row(unit) for unit in new if unit.record is not None]):
        raise _UnexpectedError
    effects = await _locked(connection, new)
    finishes: dict[int, Finish] = {}
    for unit in new:
        try:
            skipped = effects.apply(unit)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the fault of this unit)
            finishes[id(unit)] = Finish(Outcome.REFUSED, error=error)
        else:
            finishes[id(unit)] = _committed(skipped)
    refused = [
        unit.record.key
        for unit in new
        if unit.record is not None and finishes[id(unit)].outcome is Outcome.REFUSED
    ]
    if refused:
        await records.unwrite(connection, refused)
    await _came_again(connection, [u for u in new if finishes[id(u)].outcome is Outcome.COMMITTED])
    await document_rows.store(connection, effects.before, effects.after)
    return [finishes.get(id(unit), COMMITTED) for unit in units]


async def _alone(link: Link, unit: Unit) -> Finish:
    if unit.resumes:
        return COMMITTED
    finish = await _tried(link, unit)
    for _ in range(_RERUNS):
        if not isinstance(finish, _LostError):
            break
        finish = await _tried(link, unit)
    return finish if isinstance(finish, Finish) else _refused(finish)


async def _tried(link: Link, unit: Unit) -> Finish | _LostError:
    try:
        return await link.run(lambda connection: _one(connection, unit), lends=bool(unit.bodies))
    except (KeyTakenError, asyncpg.LockNotAvailableError) as error:
        return Finish(Outcome.REFUSED, error=error)
    except _LostError as lost:
        return lost
    except (AtCommitError, _RefusedError) as refusal:
        return _refused(refusal)


def _refused(refusal: Exception) -> Finish:
    error = refusal.__cause__
    return Finish(
        Outcome.REFUSED,
        error=error if isinstance(error, Exception) else None,
        of_body=isinstance(refusal, _BodyError),
    )


async def _one(connection: Any, unit: Unit) -> Finish:
    if unit.record is not None and not await records.write(connection, [_row(unit)]):
        generation = unit.delivery.travel.generation
        await records.end_as_duplicate(connection, unit.record, generation)
        return DUPLICATE
    try:
        effects = await _locked(connection, [unit])
        skipped = effects.apply(unit)
        await _came_again(connection, [unit])
        await document_rows.store(connection, effects.before, effects.after)
    except MeanwhileError:
        raise
    except Exception as error:  # whatever a value raises: it is the fault of this unit alone
        if not is_of_values(error):
            raise
        raise _RefusedError from error
    if unit.bodies:
        try:
            await run_bodies(unit.bodies, connection)
        except Exception as error:  # a body is the user's own: it may raise anything
            raise (_LostError if is_gone(connection) else _BodyError) from error
    return _committed(skipped)


async def _locked(connection: Any, units: Sequence[Unit]) -> _Effects:
    """Read what writes are about; nobody else changes it until the end."""
    keys: dict[Key, None] = {}
    for unit in units:
        for write in unit.writes:
            collection, one = write.collection, target(write)
            check_id(collection, one)
            keys[collection, one] = None
    before = await document_rows.lock(connection, keys)
    return _Effects(before, dict(before))


async def _came_again(connection: Any, units: Sequence[Unit]) -> None:
    letters = {}
    for unit in units:
        generation = unit.delivery.travel.generation
        if generation != FIRST_GENERATION and (letter := requeued_letter(generation)):
            letters[letter] = unit.delivery.queue
    if letters:
        await records.came_again(connection, letters)


def _row(unit: Unit) -> records.Row:
    record = unit.record
    assert record is not None  # noqa: S101 (the caller looked)
    if unit.outgoing or unit.letter is not None:
        record = msgspec.structs.replace(record, outgoing=unit.outgoing, letter=unit.letter)
    generation = unit.delivery.travel.generation
    return records.row_of(record, generation, unit.letter, unit.failed_queue)


def _committed(skipped: int) -> Finish:
    return Finish(Outcome.COMMITTED, skipped=skipped) if skipped else COMMITTED
