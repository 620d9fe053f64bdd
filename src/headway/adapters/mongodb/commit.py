"""Finishing units: many in one transaction, each all or nothing.

Nearly always every unit of a group is in order. So the group is first tried as a whole, with a few
statements for all of it. If anything is not as expected, all of that is undone and each half is
tried by itself, down to the unit whose fault it is; that one says what became of it.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import PyMongoError

from headway.adapters.mongodb import bodies, effects
from headway.adapters.mongodb.connecting import Link, logs_in_again
from headway.adapters.mongodb.naming import DONE
from headway.adapters.mongodb.records import MongoRecords, came_again
from headway.adapters.mongodb.rows import row_for
from headway.adapters.mongodb.transactions import Transactions
from headway.adapters.mongodb.troubles import (
    has_ended,
    is_away,
    is_conflict,
    is_duplicate,
    unwrapped,
)
from headway.adapters.mongodb.values import Raw
from headway.core.errors import KeyTakenError, TransactionEndedError
from headway.core.event import FIRST_GENERATION
from headway.ports.commit import COMMITTED, DUPLICATE, Finish, Outcome, Unit
from headway.ports.records import DoneRecord, own_end

_AT_ONCE = 500
_BODY_CONFLICTS = 5
_GROUP_CONFLICTS = 4
_RACES = 10
_SWALLOWED = (
    "the transaction was over before it could be committed: MongoDB undoes all of it when a "
    "statement fails, or when it takes too long (a minute, if nobody changed that); let the error "
    "leave the body, or look before you write"
)


class _Job(NamedTuple):
    unit: Unit
    row: Raw | None
    """Its record."""


class _UnexpectedError(Exception):
    """The group as a whole does not do."""


class _RefusedError(Exception):
    """A write or a body of one unit raised."""


class _BodyError(_RefusedError):
    """It was a body that raised."""


class _RecordedError(Exception):
    """A record with the key of a unit is there."""


class Commits:
    """Carries units out."""

    def __init__(self, link: Link, transactions: Transactions, records: MongoRecords) -> None:
        self._link = link
        self._transactions = transactions
        self._records = records

    @logs_in_again
    async def commit(self, units: Sequence[Unit]) -> list[Finish]:
        finishes: list[Finish] = []
        together: list[_Job] = []
        for unit in units:
            job = await self._job(unit)
            # Bodies are the user's own: what they do to a transaction, they do to their unit only.
            if len(together) == _AT_ONCE or (unit.bodies and together):
                finishes += await self._together(together)
                together = []
            if unit.bodies:
                finishes.append(await self._one(job))
            else:
                together.append(job)
        return finishes + await self._together(together)

    async def _job(self, unit: Unit) -> _Job:
        if unit.record is None:
            return _Job(unit, None)
        row, parts = row_for(unit, unit.record)
        # Not in the transaction: the server holds all of that in memory.
        await self._records.keep_parts(parts)
        return _Job(unit, row)

    # As a whole

    async def _together(self, jobs: Sequence[_Job]) -> list[Finish]:
        if not jobs:
            return []
        try:
            return await self._all_at_once(jobs)
        except _UnexpectedError:
            if len(jobs) == 1:
                return [await self._one(jobs[0])]
        half = len(jobs) // 2
        return await self._together(jobs[:half]) + await self._together(jobs[half:])

    async def _all_at_once(self, jobs: Sequence[_Job]) -> list[Finish]:
        """Carry out units of which every single one is in order; else raise."""
        keys = [job.unit.record.key for job in jobs if job.unit.record is not None]
        if len(set(keys)) < len(keys):
            raise _UnexpectedError
        try:
            await effects.make_sure(self._link, [job.unit for job in jobs])
            conflicts = {"conflicts": _GROUP_CONFLICTS} if len(jobs) > 1 else {}
            skipped = await self._transactions.run(partial(self._write_all, jobs), **conflicts)
        except Exception as error:  # whosever fault it is: that comes out in smaller groups
            if is_away(error) and not is_conflict(error):
                raise
            raise _UnexpectedError from error
        return [_committed(count) for count in skipped]

    async def _write_all(self, jobs: Sequence[_Job], session: AsyncClientSession) -> list[int]:
        await self._write_records(jobs, session)
        return await effects.write(self._link, [job.unit for job in jobs], session)

    # One by one

    async def _one(self, job: _Job) -> Finish:
        """Carry out one unit, and find out what is the matter with it."""
        finish = await self._find_out(job)
        if finish.outcome is not Outcome.COMMITTED and job.row is not None:
            await self._records.drop_parts(job.row)
        return finish

    async def _find_out(self, job: _Job) -> Finish:
        record = job.unit.record
        tries = 0
        while True:
            tries += 1
            try:
                if record is not None and await self._is_duplicate(job.unit, record):
                    return DUPLICATE
                return _committed(await self._carry_out(job))
            except KeyTakenError as taken:
                return Finish(Outcome.REFUSED, error=taken)
            except _RefusedError as refusal:
                error = refusal.__cause__
                assert isinstance(error, Exception)  # noqa: S101 (it is always raised from one)
                of_body = isinstance(refusal, _BodyError)
                return Finish(Outcome.REFUSED, error=error, of_body=of_body)
            except _RecordedError as recorded:
                # It is not stored for good yet: whoever writes it is about to finish.
                if tries == _RACES:
                    raise recorded.__cause__ or recorded from None
            await self._transactions.pause(tries)

    async def _carry_out(self, job: _Job) -> int:
        unit = job.unit
        try:
            await effects.make_sure(self._link, [unit])
        except Exception as error:  # whatever the name of a collection raises, it is of this unit
            if is_away(error):
                raise
            raise _RefusedError from error
        conflicts = {"conflicts": _BODY_CONFLICTS} if unit.bodies else {}
        of_bodies: list[Exception] = []
        try:
            return await self._transactions.run(
                partial(self._write_one, job, of_bodies), **conflicts
            )
        except PyMongoError as error:
            if is_duplicate(error) or (is_conflict(error) and not unit.bodies):
                # Somebody keeps one of its documents for long: the others need not wait for that.
                raise _RefusedError from error
            of_body = bool(of_bodies)
            if not unit.bodies or not (of_body or is_conflict(error) or has_ended(error)):
                raise
            # Where a body speaks to another server, that one may be away while ours is well.
            await (await self._link.client()).admin.command("ping")
            raise (_BodyError if of_body else _RefusedError) from _blamed(error)

    async def _write_one(
        self, job: _Job, of_bodies: list[Exception], session: AsyncClientSession
    ) -> int:
        unit = job.unit
        of_bodies.clear()  # an earlier try of the same transaction may have left some
        try:
            (skipped,) = await effects.write(self._link, [unit], session)
        except Exception as error:  # whatever a value raises is the fault of this unit
            if is_away(error) or is_conflict(error):
                raise
            raise _RefusedError from unwrapped(error)
        if unit.bodies:
            database = await self._link.whole()
            try:
                await bodies.run(unit.bodies, bodies.Transaction(session, database))
            except Exception as error:  # a body is the user's own: it may raise anything
                of_bodies.append(error)
                if is_away(error) or is_conflict(error):
                    raise
                raise _BodyError from unwrapped(error)
        await self._write_records([job], session)
        return skipped

    async def _is_duplicate(self, unit: Unit, record: DoneRecord) -> bool:
        """Say whether the work was done before; another operation has an end of its own then."""
        before = (await self._records.find([record.key])).get(record.key)
        if before is None:
            return False
        end = own_end(before, record)
        if end is not None:
            await self._records.keep(end, unit.delivery.travel.generation)
        return True

    # Records, in either case

    async def _write_records(self, jobs: Sequence[_Job], session: AsyncClientSession) -> None:
        for unit, row in jobs:
            generation = unit.delivery.travel.generation
            if row is not None and generation != FIRST_GENERATION:
                await came_again(self._link, unit.delivery.queue, generation, session)
        rows = [job.row for job in jobs if job.row is not None]
        if not rows:
            return
        try:
            await (await self._link.ours(DONE)).insert_many(rows, session=session)
        except PyMongoError as error:
            if is_duplicate(error):
                raise _RecordedError from unwrapped(error)
            raise


def _blamed(error: PyMongoError) -> Exception:
    if not has_ended(error):
        return error
    refusal = TransactionEndedError(_SWALLOWED)
    refusal.__cause__ = error
    return refusal


def _committed(skipped: int) -> Finish:
    return Finish(Outcome.COMMITTED, skipped=skipped) if skipped else COMMITTED
