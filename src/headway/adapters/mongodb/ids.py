"""Ids as texts: each has one, and it leads back to exactly its document.

Events, commands and people name documents by texts. A text id is itself; an ObjectId is its digits,
a whole number too, a UUID as it is usually written. Everything else is Extended JSON, which says
what type it has. Where the text of a number or an ObjectId is itself the id of another document,
the text means that one, and the number is named by Extended JSON as well.
"""

import re
from typing import Any
from uuid import UUID

import bson
from bson import Binary, ObjectId
from bson.binary import UUID_SUBTYPE, UuidRepresentation
from bson.codec_options import DatetimeConversion
from bson.json_util import JSONMode, JSONOptions, dumps, loads

_OBJECT_ID = re.compile(r"[0-9a-f]{24}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_EXACT = 1 << 53
"""Up to here a double holds every whole number."""
_WORDS = frozenset({"true", "false", "null"})
_EXTENDED = JSONOptions(
    json_mode=JSONMode.CANONICAL,
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
)
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"


def id_of(value: Any) -> str:
    """Give the text by which everybody knows a document.

    >>> id_of("m1"), id_of(7), id_of(2.0), id_of(1.5)
    ('m1', '7', '2', '{"$numberDouble":"1.5"}')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, ObjectId) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    if isinstance(value, Binary) and value.subtype == UUID_SUBTYPE:
        return str(value.as_uuid())
    return exact_id_of(value)


def exact_id_of(value: Any) -> str:
    """Give the text that says what type an id has.

    >>> exact_id_of(7)
    '{"$numberInt":"7"}'
    """
    return dumps(value, json_options=_EXTENDED, separators=(",", ":"))


def has_text(value: Any) -> bool:
    """Say whether the text of an id leads back to it; `$` inside of an id may mean two things."""
    if not isinstance(value, dict):
        return True
    wanted = bson.encode({"": value})
    return any(bson.encode({"": each}) == wanted for each in unlikely_ids(exact_id_of(value)))


def may_be_unreadable(text: str) -> bool:
    """Say whether bytes that are no text may have been shown as this."""
    return _UNREADABLE in text


def likely_ids(text: str) -> tuple[Any, ...]:
    """Give the ids that are usually meant by a text."""
    if len(text) == 24 and _OBJECT_ID.fullmatch(text):  # noqa: PLR2004 (digits of an ObjectId)
        return text, ObjectId(text)
    return (text,)


def unlikely_ids(text: str) -> tuple[Any, ...]:
    """Give the ids that may be meant besides, where none of the usual ones is there."""
    if _WHOLE.fullmatch(text):
        whole = int(text)
        return (whole,) if _LOWEST <= whole <= _HIGHEST else ()
    if _UUID.fullmatch(text):
        return (Binary.from_uuid(UUID(text)),)
    if text.startswith("{") or text in _WORDS:
        return _extended(text)
    return ()


def _extended(text: str) -> tuple[Any, ...]:
    try:
        value = loads(text, json_options=_EXTENDED)
        return (value,) if exact_id_of(value) == text else ()
    except Exception:  # noqa: BLE001 (events name documents by any text: this one means no id)
        return ()
