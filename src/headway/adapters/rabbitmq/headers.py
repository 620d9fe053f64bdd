"""What travels beside an event, as headers of its message, and back."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from headway.core.errors import MalformedEventError
from headway.core.event import FIRST_GENERATION, short_name
from headway.core.travel import (
    LARGEST_HEADER,
    AttemptRecord,
    Refusal,
    Travel,
    instant,
    invalid_field,
)

OPERATION = "headway-operation"
GENERATION = "headway-generation"
FAILURES = "headway-failures"
NOT_YET = "headway-not-yet"
FIRST_SEEN = "headway-first-seen"
PARKED = "headway-parked"
PARKED_SINCE = "headway-parked-since"
REQUEUES = "headway-requeues"
HOPS = "headway-hops"
HISTORY = "headway-history"
REFUSALS = "headway-refusals"
RETURNS = "headway-returns"
"""How often it came back before its message was published anew."""
DUE = "headway-due"
"""When it is due, if that is later than any delay queue reaches."""
DUE_AS_BYTES = DUE.encode()
EVENT_TYPE = "headway-event-type"
"""Of an unrouted event: a property cannot hold a long type."""
UNROUTED_SINCE = "headway-unrouted-since"
"""When an unrouted event was published."""

_COUNT = "x-delivery-count"
OF_A_NEW_MESSAGE = {_COUNT: 0}
"""The headers of a message that was published with none, when a quorum queue first delivers it."""
_NOT_OF_TRAVEL = frozenset({_COUNT, RETURNS})
LONGEST_SHORT = 255
"""Bytes of a property of a message, or of a routing key."""
_MOST_RETURNS = 1_000
_HISTORY = msgspec.json.Decoder(tuple[AttemptRecord, ...])
_REFUSALS = msgspec.json.Decoder(tuple[Refusal, ...])
_NO_TIME = timedelta()
UNNAMED = Travel(operation="")
"""Of a message that says nothing of its way: its event may."""

Headers = Mapping[str, Any]
T = TypeVar("T")


def write(travel: Travel, *, returns: int = 0, due: datetime | None = None) -> dict[str, Any]:
    """Write headers; what is as at the beginning is left out.

    So a new event has none: the message id names its operation, if that is not too long for it.
    """
    numbers = {
        FAILURES: travel.failures,
        NOT_YET: travel.not_yet,
        REQUEUES: travel.requeues,
        HOPS: travel.hops,
        RETURNS: returns,
    }
    headers: dict[str, Any] = {name: number for name, number in numbers.items() if number}
    if travel.generation != FIRST_GENERATION:
        headers[GENERATION] = travel.generation
    for name, at in ((FIRST_SEEN, travel.first_seen), (PARKED_SINCE, travel.parked_since)):
        if at is not None:
            headers[name] = instant(at)
    if due is not None:
        headers[DUE] = instant(due)
    if travel.parked:
        headers[PARKED] = str(travel.parked / timedelta(microseconds=1))
    if travel.history:
        headers[HISTORY] = msgspec.json.encode(travel.history).decode()
    if travel.refusals:
        headers[REFUSALS] = msgspec.json.encode(travel.refusals).decode()
    if message_id(travel) is None and travel.operation:
        headers[OPERATION] = travel.operation
    return headers


def message_id(travel: Travel) -> str | None:
    """Give the operation as a message id, if it can be one."""
    operation = travel.operation
    return operation if operation and len(operation.encode()) <= LONGEST_SHORT else None


def read(headers: Headers | None, message_id: str | None) -> Travel:
    """Read headers, or say by MalformedEventError why they cannot be read."""
    if not headers or headers.keys() <= _NOT_OF_TRAVEL:
        # Whoever publishes plain events names them in the event, or by message id.
        return Travel(operation=message_id) if message_id else UNNAMED
    parked = headers.get(PARKED)
    travel = Travel(
        operation=_operation(headers) if OPERATION in headers else message_id or "",
        generation=_text(headers, GENERATION) if GENERATION in headers else FIRST_GENERATION,
        failures=_number(headers, FAILURES),
        not_yet=_number(headers, NOT_YET),
        first_seen=_instant(headers, FIRST_SEEN),
        parked=_NO_TIME if parked is None else _parked(parked),
        parked_since=_instant(headers, PARKED_SINCE),
        requeues=_number(headers, REQUEUES),
        hops=_number(headers, HOPS),
        history=_list(headers, HISTORY, _HISTORY),
        refusals=_list(headers, REFUSALS, _REFUSALS),
    )
    if wrong := invalid_field(travel):
        field, problem = wrong
        raise MalformedEventError(f"the header headway-{field.replace('_', '-')} {problem}")
    return travel


def returns(headers: Headers | None) -> int:
    """Say how often a message has come back; what makes no sense counts for nothing."""
    if not headers:
        return 0
    before, count = headers.get(RETURNS, 0), headers.get(_COUNT, 0)
    number = sum(int(n) for n in (before, count) if isinstance(n, int) and n > 0)
    return min(number, _MOST_RETURNS)


def due(headers: Headers | None) -> datetime | None:
    """Say when a message is due. The caller ignores times out of reach."""
    at = None if not headers else _instant(headers, DUE)
    return at if at is not None and at.tzinfo is not None else None


def _operation(headers: Headers) -> str:
    return short_name(_text(headers, OPERATION))


def _text(headers: Headers, name: str) -> str:
    value = headers[name]
    if not isinstance(value, str) or not value:
        raise MalformedEventError(f"the header {name} is no text")
    return value


def _number(headers: Headers, name: str) -> int:
    value = headers.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedEventError(f"the header {name} is not a whole number")
    return int(value)


def _instant(headers: Headers, name: str) -> datetime | None:
    value = headers.get(name)
    if value is None:
        return None
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        raise MalformedEventError(f"the header {name} is not an ISO 8601 time") from None


def _parked(value: object) -> timedelta:
    try:
        return timedelta(microseconds=float(str(value)))
    except (ValueError, OverflowError):
        raise MalformedEventError(f"the header {PARKED} is not a number of microseconds") from None


def _list(
    headers: Headers, name: str, decoder: "msgspec.json.Decoder[tuple[T, ...]]"
) -> tuple[T, ...]:
    value = headers.get(name)
    if value is None:
        return ()
    text = str(value)
    if len(text) > LARGEST_HEADER:
        raise MalformedEventError(f"the header {name} is larger than {LARGEST_HEADER} bytes")
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise MalformedEventError(f"the header {name} cannot be read: {error}") from None
