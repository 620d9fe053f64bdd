"""Taking what is due, and giving it up again."""

# ruff: noqa: S608 (statements are put together from parts of our own; values are bound)

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter

import msgspec

from headway.adapters.sqlite.liveness import Worker
from headway.adapters.sqlite.publishing import keep_count
from headway.adapters.sqlite.rows import (
    TAKEN,
    TRAVEL_COLUMNS,
    UNREADABLE,
    UNREADABLE_ERRORS,
    Taken,
    Unreadable,
    travel_row,
)
from headway.adapters.sqlite.statements import as_json
from headway.adapters.sqlite.timeline import Moment
from headway.core.travel import Travel
from headway.ports.bus import Delivery, Done, HandedBack, Later, Parked, Then

_ROWS = msgspec.json.Decoder(list[Taken])
_ROW = msgspec.json.Decoder(Taken)

_NO_TEXT = "a column that should hold text holds bytes, or text that is not UTF-8"
"""SQLite quotes the text itself, which may be secret."""

_BYTES_AT_ONCE = 32 * 2**20
_QUEUES_AT_ONCE = 100
"""SQLite joins no more than 500 selects."""

_FREE = """
select * from (
    select id, due from headway_items
    where token is null and queue = ? and due <= ? order by due, id limit ?
)
"""
_ONE = f"select {TAKEN} from headway_items where id = ?"
_UNREADABLE = f"select {UNREADABLE} from headway_items where id = ?"
_BODY = "select body from headway_items where id = ?"
_TAKE = """
update headway_items
set token = ?, taking = ?, first_seen = coalesce(first_seen, ?), begun = 0
where id in (select value from json_each(?))
"""
# Less than endless: a text, or bytes, would be more than any number.
_NEXT = """
select min(due) from headway_items
where token is null and queue = ? and due < 9e999 and (refusals is null or not instr(refusals, ?))
"""

_OURS = "where id = ? and token = ? and taking = ?"
_IS_OURS = f"select 1 from headway_items {_OURS}"
_BEGIN = f"update headway_items set begun = 1 {_OURS}"
_DELETE = f"delete from headway_items {_OURS}"
_HAND_BACK = f"update headway_items set token = null, begun = 0 {_OURS}"
_HAND_BACK_FOR_LATER = f"""
update headway_items set token = null, begun = 0, place = 'delayed', due = ? {_OURS}
"""
_HAND_BACK_CHANGED = f"""
update headway_items
set token = null, begun = 0, place = 'delayed', due = ?,
    {", ".join(f"{column} = ?" for column in TRAVEL_COLUMNS)}
{_OURS}
"""
_KEEP = f"""
update headway_items
set token = null, place = ?, due = ?, returns = 0, begins = 0, begun = 0,
    {", ".join(f"{column} = ?" for column in TRAVEL_COLUMNS)}
{_OURS}
"""
_DELETE_ALL = """
delete from headway_items
where id in (select value from json_each(?)) and token = ? and taking = ?
"""
_RESUME = """
update headway_items set due = min(due, ?), place = 'ready'
where queue = ? and place = 'parked' and token is null
"""

_AGE = attrgetter("due", "id")
_QUEUE = attrgetter("queue")


def take(
    connection: sqlite3.Connection,
    worker: Worker,
    queues: Sequence[str],
    limit: int,
    moment: Moment,
) -> list[Delivery]:
    """Take at most `limit` that are due, the oldest first."""
    token, taking, at = worker.register(connection), worker.next_taking(), moment.at
    rows = _due(connection, queues, limit, at)
    if not rows:
        return []
    connection.execute(_TAKE, (token, taking, at, as_json([row.id for row in rows])))
    return [_delivery(connection, row, token, taking, moment) for row in rows]


def _due(
    connection: sqlite3.Connection, queues: Sequence[str], limit: int, at: float
) -> list[Taken | Unreadable]:
    """Choose what is due, the oldest first: as much as one answer can hold, and at least one."""
    names, found = list(dict.fromkeys(queues)), list[Taken | Unreadable]()
    for start in range(0, len(names), _QUEUES_AT_ONCE):
        chunk = names[start : start + _QUEUES_AT_ONCE]
        values = [*(value for queue in chunk for value in (queue, at, limit)), limit]
        try:
            rows = connection.execute(_free(len(chunk), f"json_group_array({TAKEN})"), values)
            found += _ROWS.decode(rows.fetchone()[0])
        except UNREADABLE_ERRORS:
            # At least one row is not as we write it. Which one comes out when each is read alone.
            rows = connection.execute(_free(len(chunk), "id"), values)
            found += [_read(connection, number) for (number,) in rows.fetchall()]
    found.sort(key=_AGE)
    chosen, total = list[Taken | Unreadable](), 0
    for row in found[:limit]:
        total += row.size
        if chosen and total > _BYTES_AT_ONCE:
            break
        chosen.append(row)
    return chosen


def _read(connection: sqlite3.Connection, number: int) -> Taken | Unreadable:
    try:
        return _ROW.decode(connection.execute(_ONE, (number,)).fetchone()[0])
    except UNREADABLE_ERRORS as error:
        return _unreadable(connection, number, error)


def _unreadable(connection: sqlite3.Connection, number: int, error: Exception) -> Unreadable:
    # Where the file itself is in trouble, this raises too.
    queue, due, operation, generation, body = connection.execute(_UNREADABLE, (number,)).fetchone()
    why = _NO_TEXT if isinstance(error, sqlite3.Error) else str(error)
    return Unreadable(number, queue, due, operation, generation, body, why)


def _delivery(
    connection: sqlite3.Connection,
    row: Taken | Unreadable,
    token: str,
    taking: int,
    moment: Moment,
) -> Delivery:
    if isinstance(row, Taken):
        try:
            return row.delivery(_body(connection, row), token, taking, moment.now, moment.ahead)
        except UNREADABLE_ERRORS as error:
            row = _unreadable(connection, row.id, error)
    return row.delivery(token, taking)


@lru_cache(maxsize=128)
def _free(queues: int, what: str) -> str:
    # Each queue gives its own oldest by its index, so the cost does not grow with the backlog.
    free = " union all ".join([_FREE] * queues)
    return f"""
    select {what} from headway_items
    where id in (select id from ({free}) order by due, id limit ?)
    """


def _body(connection: sqlite3.Connection, row: Taken) -> bytes:
    if row.body is not None:
        return row.body.encode() if row.is_text else bytes.fromhex(row.body)
    body: str | bytes = connection.execute(_BODY, (row.id,)).fetchone()[0]
    return body.encode() if isinstance(body, str) else body


def next_due(connection: sqlite3.Connection, queues: Sequence[str], worker: Worker) -> float | None:
    """Say when a worker should look again: when the next free item is due.

    What its own version has refused it leaves to others first, and finds when it looks anyway.
    """
    firsts = [
        connection.execute(_NEXT, (queue, worker.refusal_of(queue))).fetchone()[0]
        for queue in queues
    ]
    return min((first for first in firsts if first is not None), default=None)


def is_ours(connection: sqlite3.Connection, delivery: Delivery) -> bool:
    return connection.execute(_IS_OURS, delivery.receipt).fetchone() is not None


def begin(connection: sqlite3.Connection, delivery: Delivery) -> bool:
    return connection.execute(_BEGIN, delivery.receipt).rowcount == 1


def settle(connection: sqlite3.Connection, delivery: Delivery, then: Then, moment: Moment) -> bool:
    """Settle one delivery, if it is still its taker's."""
    match then:
        case Done():
            cursor = connection.execute(_DELETE, delivery.receipt)
            if cursor.rowcount == 1:
                keep_count(connection, [delivery.queue], -1)
        case HandedBack(due=datetime() as due, travel=Travel() as travel):
            values = (moment.stored(due), *travel_row(travel, moment.ahead), *delivery.receipt)
            cursor = connection.execute(_HAND_BACK_CHANGED, values)
        case HandedBack(due=datetime() as due):
            cursor = connection.execute(
                _HAND_BACK_FOR_LATER, (moment.stored(due), *delivery.receipt)
            )
        case HandedBack():
            cursor = connection.execute(_HAND_BACK, delivery.receipt)
        case Later() | Parked():
            place = "parked" if isinstance(then, Parked) else "delayed"
            row = travel_row(then.travel, moment.ahead)
            kept = (place, moment.stored(then.due), *row, *delivery.receipt)
            cursor = connection.execute(_KEEP, kept)
    return cursor.rowcount == 1


def delete_all(connection: sqlite3.Connection, deliveries: Sequence[Delivery]) -> bool:
    """Take deliveries out of their queues; False: some were not ours, and all has to be undone."""
    takings: dict[tuple[str, int], list[int]] = {}
    for delivery in deliveries:
        number, token, taking = delivery.receipt
        takings.setdefault((token, taking), []).append(number)
    gone = 0
    for (token, taking), ids in takings.items():
        gone += connection.execute(_DELETE_ALL, (as_json(ids), token, taking)).rowcount
    keep_count(connection, map(_QUEUE, deliveries), -1)
    return gone == len(deliveries)


def resume(connection: sqlite3.Connection, queue: str, moment: Moment) -> int:
    return connection.execute(_RESUME, (moment.at, queue)).rowcount
