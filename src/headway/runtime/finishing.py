"""Finish units where the store and the bus are two different things.

The order is the promise: commit in the store (effects, record, and what has to be sent), send and
have it confirmed, take down that it was sent, and only then settle the delivery. A crash between
any two steps repeats a step, and every step can be repeated: the record recognises the delivery,
and what is sent again has the same ids.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from headway.core.errors import UnsendableError
from headway.core.letter import Letter
from headway.ports.bus import Bus, HandedBack, Message, unrouted_types
from headway.ports.commit import COMMITTED, LOST, Finish, Outcome, Unit
from headway.ports.letters import Letters
from headway.ports.records import DoneRecord, DoneRecords, Ended

_HANDED_BACK = HandedBack()


class Store(Protocol):
    """Commits effects and records, each unit as one."""

    async def commit(self, units: Sequence[Unit]) -> Sequence[Finish]:
        """Write effects, record, and inside the record what is to be sent."""
        ...


async def dispatch(records: Sequence[DoneRecord], bus: Bus, letters: Letters) -> frozenset[str]:
    """Send what records still hold, and have it confirmed; name the types that no queue took.

    A letter about which somebody has decided is not written again.
    """
    outgoing: list[Message] = []
    by_queue: dict[str, list[Letter]] = {}
    for record in records:
        outgoing.extend(record.outgoing)
        if record.letter is not None and record.ended is Ended.FAILED:
            by_queue.setdefault(record.failed_queue, []).append(record.letter)
    for queue, written in by_queue.items():
        await letters.write(queue, written)
    return unrouted_types(outgoing, await bus.publish(outgoing)) if outgoing else frozenset()


async def dispatch_sendable(
    records: Sequence[DoneRecord], bus: Bus, letters: Letters
) -> tuple[Sequence[DoneRecord], frozenset[str]]:
    """Send what can be sent; give the records of which everything was, and unrouted types.

    What the bus never takes stays in its record, where a later round finds it: somebody may have
    given the bus other limits by then. It keeps nothing else back.
    """
    try:
        return records, await dispatch(records, bus, letters)
    except UnsendableError as error:
        if len(records) == 1:
            logging.getLogger("headway").error(  # noqa: TRY400 (where it was sent helps nobody)
                "What %s has to send cannot be sent, and stays in its record: %s",
                records[0].key,
                error,
            )
            return (), frozenset()
    parts = [await dispatch_sendable([record], bus, letters) for record in records]
    sent = [record for records, _ in parts for record in records]
    return sent, frozenset().union(*(unrouted for _, unrouted in parts))


async def dispatch_left_over(
    unsent: Sequence[DoneRecord], records: DoneRecords, bus: Bus, letters: Letters
) -> None:
    """Send what others left unsent, and take down that it was.

    They may have written a letter before they died, and a person may have decided about it between
    our look at the record and our writing. Then the record says so by now, and what is in the
    failed queue is only our copy: a letter is requeued or purged once, and its id never comes
    again.
    """
    sent, _ = await dispatch_sendable(unsent, bus, letters)
    if sent:
        await records.dispatched([record.key for record in sent])
    written = {record.key: record for record in sent if record.letter is not None}
    if not written:
        return
    for key, found in (await records.find(list(written))).items():
        letter = written[key].letter
        if letter is not None and found.ended is not Ended.FAILED:
            await letters.remove(written[key].failed_queue, [letter.letter_id])


class StoreThenBus:
    """The finisher for a bus with a store beside it."""

    at_once = 1

    def __init__(self, store: Store, records: DoneRecords, bus: Bus, letters: Letters) -> None:
        self._store = store
        self._records = records
        self._bus = bus
        self._letters = letters

    async def finish(self, units: Sequence[Unit]) -> Sequence[Finish]:
        finishes = await self._commit(units)
        fresh: list[DoneRecord] = []
        known: list[str] = []
        for unit, finish in zip(units, finishes, strict=True):
            if unit.record is None or finish.outcome is Outcome.REFUSED:
                continue
            if unit.resumes or finish.outcome is not Outcome.COMMITTED:
                known.append(unit.record.key)
            elif unit.outgoing or unit.letter is not None:
                fresh.append(_holding(unit, unit.record))
        unsent: set[str] = set()
        if fresh:
            sent, unrouted = await dispatch_sendable(fresh, self._bus, self._letters)
            if unrouted:
                finishes = [
                    replace(finish, unrouted=unit.unrouted(unrouted))
                    for unit, finish in zip(units, finishes, strict=True)
                ]
            await self._records.dispatched([record.key for record in sent])
            unsent = {record.key for record in fresh} - {record.key for record in sent}
        if known:
            await self._dispatch_known(known)
        return await self._settle(units, finishes, unsent)

    async def _dispatch_known(self, keys: Sequence[str]) -> None:
        """Send what is left of work that had ended before."""
        found = (await self._records.find(keys)).values()
        unsent = [record for record in found if record.outgoing or record.letter]
        if unsent:
            await dispatch_left_over(unsent, self._records, self._bus, self._letters)

    async def _commit(self, units: Sequence[Unit]) -> list[Finish]:
        to_commit = [unit for unit in units if unit.record is not None and not unit.resumes]
        committed = iter(await self._store.commit(to_commit)) if to_commit else iter(())
        return [
            COMMITTED if unit.record is None or unit.resumes else next(committed) for unit in units
        ]

    async def _settle(
        self, units: Sequence[Unit], finishes: Sequence[Finish], unsent: Collection[str] = ()
    ) -> Sequence[Finish]:
        ended = [
            (unit.delivery, _HANDED_BACK if unsent and _lacks_letter(unit, unsent) else unit.then)
            for unit, finish in zip(units, finishes, strict=True)
            if finish.outcome is not Outcome.REFUSED
        ]
        settled = iter(await self._bus.settle(ended))
        # Whoever settles late has committed all the same, unless somebody else had: then the
        # record said so. So a delivery that was lost in between is no reason to say LOST here.
        return [
            finish
            if finish.outcome is Outcome.REFUSED
            else finish
            if next(settled) or unit.record is not None
            else LOST
            for unit, finish in zip(units, finishes, strict=True)
        ]


def _lacks_letter(unit: Unit, unsent: Collection[str]) -> bool:
    """Its letter cannot be written; the bus may still have a place for the event itself."""
    return unit.letter is not None and unit.record is not None and unit.record.key in unsent


def _holding(unit: Unit, record: DoneRecord) -> DoneRecord:
    return msgspec.structs.replace(
        record, outgoing=unit.outgoing, letter=unit.letter, failed_queue=unit.failed_queue
    )
