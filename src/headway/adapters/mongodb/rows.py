"""Done-records as documents.

| field | |
|---|---|
| _id | the key |
| operation, queue, generation | what has ended |
| ended, at | how and when |
| seq | the order in which records were written |
| again | true: not the first generation |
| letter, failed_queue | the id of its letter, if it failed, and where that goes |
| unsent | true while something is held |
| outgoing, case | what is held: events, and the letter, as JSON |
| spread | in how many parts it is held elsewhere, where one document cannot hold it |
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from bson import ObjectId, Timestamp

from headway.adapters.mongodb.values import Raw, milliseconds
from headway.core.event import FIRST_GENERATION
from headway.core.letter import Letter, letter_id
from headway.core.writes import ID
from headway.ports.bus import Message
from headway.ports.commit import Unit
from headway.ports.records import DoneRecord, Ended

FINAL = tuple(
    end.value for end in (Ended.DONE, Ended.DUPLICATE, Ended.SUPERSEDED, Ended.MOVED, Ended.PURGED)
)
"""Ends for good: what failed is in its letter, what was requeued in its queue again."""
SENT = {"$unset": {"unsent": "", "outgoing": "", "case": "", "spread": ""}}
_HOLDS = ("outgoing", "case")
_PART = 8 << 20
"""Bytes; a document holds twice as many."""
_MESSAGES = msgspec.json.Decoder(tuple[Message, ...])
_LETTER = msgspec.json.Decoder(Letter)


def row_of(
    record: DoneRecord, generation: str, letter: Letter | None = None, failed_queue: str = ""
) -> tuple[Raw, list[Raw]]:
    """Write a record as a document, and what does not fit into it as parts."""
    row: Raw = {
        ID: record.key,
        "operation": record.operation,
        "queue": record.queue,
        "generation": generation,
        "ended": record.ended.value,
        "at": milliseconds(record.at),
        "seq": Timestamp(0, 0),  # the server fills it in, each one higher than the last
        "failed_queue": failed_queue or record.failed_queue,
    }
    if generation != FIRST_GENERATION:
        row["again"] = True
    if record.ended == Ended.FAILED:
        there = letter or record.letter
        row["letter"] = (
            there.letter_id if there else letter_id(record.queue, record.operation, generation)
        )
    held: dict[str, bytes] = {}
    if record.outgoing:
        held["outgoing"] = msgspec.json.encode(record.outgoing)
    if record.letter is not None:
        held["case"] = msgspec.json.encode(record.letter)
    if not held:
        return row, []
    row["unsent"] = True
    if sum(map(len, held.values())) <= _PART:
        return {**row, **held}, []
    # Named anew each time: of two who do the same work, each has its own.
    spread = {name: -(-len(data) // _PART) for name, data in held.items()}
    row["spread"] = {"by": str(ObjectId()), **spread}
    return row, [
        {
            ID: part,
            "by": row["spread"]["by"],
            "key": record.key,
            "at": row["at"],
            "data": data[number * _PART : (number + 1) * _PART],
        }
        for name, data in held.items()
        for number, part in enumerate(_parts_of(row, name))
    ]


def row_for(unit: Unit, record: DoneRecord) -> tuple[Raw, list[Raw]]:
    """Write the record of a unit, with what is to be sent inside it."""
    if unit.outgoing or unit.letter is not None:
        record = msgspec.structs.replace(record, outgoing=unit.outgoing, letter=unit.letter)
    return row_of(record, unit.delivery.travel.generation, unit.letter, unit.failed_queue)


def part_ids(row: Mapping[str, Any]) -> list[str]:
    """Name the parts of what a record holds."""
    return [part for name in _HOLDS for part in _parts_of(row, name)]


def record_of(row: Mapping[str, Any], parts: Mapping[str, bytes]) -> DoneRecord:
    """Read a record, and what it holds."""
    outgoing, case = (_held(row, name, parts) for name in _HOLDS)
    return DoneRecord(
        key=row[ID],
        operation=row["operation"],
        queue=row["queue"],
        ended=Ended(row["ended"]),
        at=row["at"],
        outgoing=_MESSAGES.decode(outgoing) if outgoing else (),
        letter=_LETTER.decode(case) if case else None,
        failed_queue=row["failed_queue"],
    )


def decided(ended: Any) -> Sequence[Raw]:
    """Let a record say what a person decided; it holds no letter any more."""
    holds = {
        "$or": [{"$ne": [{"$type": "$outgoing"}, "missing"]}, {"$gt": ["$spread.outgoing", 0]}]
    }
    return [
        {"$set": {"ended": ended, "unsent": {"$cond": [holds, True, "$$REMOVE"]}}},
        {"$unset": ["case", "spread.case"]},
    ]


def sent_to(queue: str | None) -> Raw:
    """Say REQUEUED or MOVED: was it sent to the queue that it came from?"""
    same = {"$eq": ["$queue", {"$literal": queue}]}
    return {"$cond": [same, Ended.REQUEUED.value, Ended.MOVED.value]}


def _held(row: Mapping[str, Any], name: str, parts: Mapping[str, bytes]) -> bytes:
    whole: bytes = row.get(name, b"")
    return whole + b"".join(parts[part] for part in _parts_of(row, name))


def _parts_of(row: Mapping[str, Any], name: str) -> list[str]:
    spread = row.get("spread", {})
    return [f"{spread['by']}/{name}/{number}" for number in range(spread.get(name, 0))]
