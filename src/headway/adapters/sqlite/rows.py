"""Items as rows: what travels beside an event, column by column."""

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headway.adapters.sqlite.statements import json_text
from headway.core.event import FIRST_GENERATION
from headway.core.travel import AttemptRecord, Refusal, Travel, invalid_refusals
from headway.ports.bus import Delivery

ITEM_COLUMNS = (
    "queue, due, operation, generation, failures, not_yet, first_seen, parked_seconds, "
    "parked_since, requeues, history, refusals, hops, body"
)
TRAVEL_COLUMNS = (
    "generation",
    "failures",
    "not_yet",
    "first_seen",
    "parked_seconds",
    "parked_since",
    "requeues",
    "history",
    "refusals",
    "hops",
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HISTORY = msgspec.json.Decoder(tuple[AttemptRecord, ...])
_REFUSALS = msgspec.json.Decoder(tuple[Refusal, ...])


def seconds(instant: datetime) -> float:
    return instant.timestamp()


def instant(seconds: float) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def micros(column: str) -> str:
    """Read a time as a whole number: SQLite writes numbers with a point too short into JSON."""
    return f"cast(round({column} * 1000000) as integer)"


class Taken(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An item as `TAKEN` reads it."""

    id: int
    queue: str
    due: int
    returns: int
    begins: int
    operation: str
    generation: str
    failures: int
    not_yet: int
    first_seen: int | None
    parked: int
    parked_since: int | None
    requeues: int
    history: str | None
    refusals: str | None
    hops: int
    is_text: int
    body: str | None
    """None: it is too large to be read with the others."""
    size: int

    def delivery(
        self, body: bytes, token: str, taking: int, now: datetime, ahead: float
    ) -> Delivery:
        """Give the item as it is taken; `ahead`: of the file's time, compared to `now`."""
        first_seen, parked_since = now, None
        if self.first_seen is not None:
            first_seen = _at(self.first_seen) - timedelta(seconds=ahead)
        if self.parked_since is not None:
            parked_since = _at(self.parked_since) - timedelta(seconds=ahead)
        return Delivery(
            queue=self.queue,
            body=body,
            travel=Travel(
                operation=self.operation,
                generation=self.generation,
                failures=self.failures,
                not_yet=self.not_yet,
                first_seen=first_seen,
                parked=timedelta(microseconds=self.parked) if self.parked else _NO_TIME,
                parked_since=parked_since,
                requeues=self.requeues,
                history=() if self.history is None else _HISTORY.decode(self.history),
                refusals=() if self.refusals is None else _refusals(self.refusals),
                hops=self.hops,
            ),
            receipt=(self.id, token, taking),
            returns=self.returns,
            begins=self.begins,
        )


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """An item whose row does not hold what we write, as `UNREADABLE` reads it."""

    id: int
    queue: str
    due: int
    operation: bytes
    generation: bytes
    body: bytes
    why: str

    @property
    def size(self) -> int:
        return len(self.body)

    def delivery(self, token: str, taking: int) -> Delivery:
        """Give the item as it is taken: it has its bytes and its name, and says what is wrong."""
        travel = Travel(
            operation=text(self.operation),
            generation=text(self.generation) or FIRST_GENERATION,
        )
        why = f"Row {self.id} of headway_items cannot be read: {self.why}"
        receipt = (self.id, token, taking)
        return Delivery(
            queue=self.queue, body=self.body, travel=travel, receipt=receipt, spoilt=why
        )


UNREADABLE_ERRORS = (sqlite3.OperationalError, msgspec.DecodeError, OverflowError, ValueError)
"""What reading such a row raises: SQLite, JSON, times out of range, bytes that are no text."""


LARGE = 64 * 2**10
"""A body of more bytes is read by itself, once it is clear that this worker takes it."""


def size(column: str) -> str:
    """Count bytes; since SQLite 3.43 without reading them."""
    if sqlite3.sqlite_version_info >= (3, 43, 0):
        return f"octet_length({column})"
    return f"length(cast({column} as blob))"


TAKEN = f"""
json_array(
    id, queue, {micros("due")}, returns, begins, operation, generation, failures, not_yet,
    {micros("first_seen")}, {micros("parked_seconds")}, {micros("parked_since")},
    requeues, history, refusals, hops, typeof(body) = 'text',
    case when {size("body")} > {LARGE} then null
         when typeof(body) = 'text' then body else hex(body) end,
    {size("body")}
)
"""

UNREADABLE = f"""
queue, {micros("due")}, cast(operation as blob), cast(generation as blob),
coalesce(cast(body as blob), x'')
"""

_NO_TIME = timedelta()


def _refusals(text: str) -> tuple[Refusal, ...]:
    refusals = _REFUSALS.decode(text)
    if problem := next(invalid_refusals(refusals), None):
        raise ValueError(f"refusals {problem}")
    return refusals


def text(raw: bytes) -> str:
    """Read a text that another program may have written; empty: it is none."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return ""


def _at(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def travel_row(travel: Travel, ahead: float) -> tuple[Any, ...]:
    """Give the values of TRAVEL_COLUMNS; `ahead`: of the file's time, compared to our own."""
    return (
        travel.generation,
        travel.failures,
        travel.not_yet,
        None if travel.first_seen is None else seconds(travel.first_seen) + ahead,
        travel.parked.total_seconds(),
        None if travel.parked_since is None else seconds(travel.parked_since) + ahead,
        travel.requeues,
        json_text.encode(travel.history).decode() if travel.history else None,
        json_text.encode(travel.refusals).decode() if travel.refusals else None,
        travel.hops,
    )


def item_row(queue: str, body: bytes, travel: Travel, due: float, ahead: float) -> tuple[Any, ...]:
    """Give the values of ITEM_COLUMNS."""
    return (queue, due, travel.operation, *travel_row(travel, ahead), stored(body))


def stored(body: bytes) -> str | bytes:
    """Keep bytes as text where that gives them back: then they can be read, by JSON and by eye."""
    if b"\0" in body:
        return body
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body
