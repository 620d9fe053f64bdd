"""Documents as JSON: what BSON has besides is shown as text, and is never rewritten.

Other clients write dates, object ids and decimals. Handlers and rules see JSON, on every store the
same. The times of our own fields are kept as dates, so that indexes and other clients understand
them.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import InvalidOperation
from math import inf, isfinite, nan
from typing import Any

from bson import Binary, DatetimeMS, Decimal128, Int64, Timestamp
from bson.binary import UUID_SUBTYPE

from headway.adapters.mongodb.ids import id_of, likely_ids, unlikely_ids
from headway.core.document import CLAIM_BEFORE, TIMES, moment
from headway.core.travel import instant
from headway.core.writes import ID, Document

Raw = dict[str, Any]
"""A document as the driver gives it."""

_PLAIN = frozenset({str, int, bool, type(None)})
_INSTANT_LENGTHS = (len("2000-01-01T00:00:00Z"), len("2000-01-01T00:00:00.000000Z"))
_UNNUMBERED = (None, nan, inf, -inf)
"""What JSON can only show as null."""


# As it is shown


def view(raw: Mapping[str, Any]) -> Document:
    """Show a document of the database as JSON."""
    shown = {field: json_of(value) for field, value in raw.items()}
    if ID in raw:
        shown[ID] = id_of(raw[ID])
    return shown


def json_of(value: Any) -> Any:  # noqa: PLR0911 (one for each kind of value)
    """Show a value as JSON."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if isfinite(value) else None
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, Mapping):
        return {str(field): json_of(each) for field, each in value.items()}
    if isinstance(value, list):
        return [json_of(each) for each in value]
    if isinstance(value, Int64 | DatetimeMS):  # a date beyond the calendar is only a number
        return int(value)
    if isinstance(value, bytes):
        return _text_of(value)
    if isinstance(value, Timestamp):
        return instant(value.as_datetime())
    return str(value)


def _text_of(value: bytes) -> str:
    if isinstance(value, Binary) and value.subtype == UUID_SUBTYPE:
        return str(value.as_uuid())
    return b64encode(value).decode()


# As it is kept


def kept(document: Document) -> Raw:
    """Give a document as it is stored: our own times as dates, the rest as it is."""
    return {field: kept_value(field, value) for field, value in document.items()}


def kept_value(field: str, value: Any) -> Any:
    """Give the value of a field as it is stored."""
    if field in TIMES and isinstance(value, str):
        return date_of(value) or value
    if field == CLAIM_BEFORE and isinstance(value, dict):
        return {inner: kept_value(inner, each) for inner, each in value.items()}
    return value


def date_of(text: str) -> datetime | None:
    """Read an instant, to the millisecond, if it is written as we write it."""
    if len(text) not in _INSTANT_LENGTHS or text[-1] != "Z":
        return None
    read = moment(text)
    if read is None or instant(read) != text:
        return None
    return read.replace(microsecond=read.microsecond // 1000 * 1000)


def milliseconds(when: datetime) -> datetime:
    """Give an instant as the database keeps it."""
    return when.astimezone(UTC).replace(microsecond=when.microsecond // 1000 * 1000)


# What may be meant


def likely(value: Any) -> tuple[Any, ...]:
    """Give what is usually stored where this is shown."""
    if not isinstance(value, str):
        return _UNNUMBERED if value is None else (value,)
    date = date_of(value)
    return (value,) if date is None or instant(date) != value else (value, date)


def every(value: str) -> list[Any]:
    """Give all that is shown as this text."""
    found = [*likely(value), *likely_ids(value)[1:], *unlikely_ids(value)]
    with suppress(InvalidOperation):
        found.append(Decimal128(value))
    with suppress(ValueError):
        found.append(b64decode(value, validate=True))
    return found
