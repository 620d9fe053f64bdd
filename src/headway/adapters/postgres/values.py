"""Documents as jsonb, and texts as PostgreSQL takes them.

PostgreSQL keeps no U+0000. In a document it is refused; a record has to be kept whatever its names
hold, so there it is written in another way.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from hashlib import sha256
from typing import Any

import msgspec

from headway.core.errors import UnstorableError
from headway.core.storable import Rule, field_with
from headway.core.unreadable import is_stand_in, stand_in
from headway.core.writes import ID, Document

_ENCODER = msgspec.json.Encoder()
_DOCUMENT = msgspec.json.Decoder(Document)
_NULL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_LARGE = re.compile(rb"[0-9][eE]\+?[0-9]")
_STRING_OR_LARGE = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9]+(?:\.[0-9]+)?[eE]\+?[0-9]+', re.DOTALL
)
_LOG = logging.getLogger("headway")
_MARK = "\x01"
_U0000 = "the character U+0000, which PostgreSQL does not keep: leave it out, or write it in base64"
_LONGEST_ID = 2_000
"""Bytes. An index takes a little more, together with the name of the collection."""
_LONGEST_KEY = 1_000
_DIGITS = 4_000


def jsonb(value: Mapping[str, Any], whose: str) -> str:
    """Write a document, or fields of one, so that it comes back as it is."""
    data = _ENCODER.encode(value)
    if b"\\u0000" in data and _NULL.search(data):
        raise UnstorableError(whose, *(field_with(value, Rule(_null_in, _null_in)) or ("", _U0000)))
    if _LARGE.search(data):
        data = _STRING_OR_LARGE.sub(_written_out, data)
    return data.decode()


def _null_in(value: Any) -> str | None:
    return _U0000 if isinstance(value, str) and "\0" in value else None


def by_id(texts: Mapping[str, str]) -> str:
    """Put the JSON of many documents into one object, in which each is found by its id."""
    return f"{{{','.join(f'{json_text(one)}:{text}' for one, text in texts.items())}}}"


def _written_out(found: re.Match[bytes]) -> bytes:
    """Write 1e308 with all its digits and a point: of 1e308 jsonb would make a whole number."""
    text = found[0]
    if text.startswith(b'"'):
        return text
    digits = format(Decimal(text.decode()), "f")
    return (digits if "." in digits else f"{digits}.0").encode()


def document(one: str, body: str) -> Document:
    """Read a document that anybody may have written; its id is that of its row.

    For one that is nested too deeply to be read there is a stand-in, which no write changes.
    """
    try:
        try:
            read = _DOCUMENT.decode(body)
        except msgspec.ValidationError:  # numbers that fit into nothing
            read = json.loads(body, parse_int=_whole)
    except RecursionError:
        return stand_in(one, body)
    if read.get(ID) != one:
        read[ID] = one
    return read


def documents(rows: Iterable[tuple[str, str]], collection: str) -> list[Document]:
    """Read the documents of rows. Those that nobody could read are named in the log, no more."""
    read = [document(one, body) for one, body in rows]
    for each in read:
        if is_stand_in(each):
            _LOG.warning(
                "%s: the document %.200r is left alone, for nobody can read it: it is nested too "
                "deeply",
                collection,
                each[ID],
            )
    return [each for each in read if not is_stand_in(each)]


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def check_id(collection: str, one: str) -> None:
    """Refuse an id that PostgreSQL could not keep."""
    if "\0" in one or "\0" in collection:
        raise ValueError(
            f"{collection}/{one!r} holds the character U+0000, which PostgreSQL does not keep: "
            "use an id without it"
        )
    if 4 * len(one) + 4 * len(collection) > _LONGEST_ID:
        size = len(one.encode()) + len(collection.encode())
        if size > _LONGEST_ID:
            raise ValueError(
                f"{collection}/{one[:40]}... has an id of {size} bytes, the name of the collection "
                f"included, and PostgreSQL's index takes {_LONGEST_ID}: use a shorter one, such as "
                "a hash of it"
            )


def findable(text: str) -> bool:
    """Say whether a text could be there at all."""
    return "\0" not in text


def kept(text: str) -> str:
    """Give a text of a record as it is kept; nearly every one stays as it is."""
    if "\0" in text or _MARK in text:
        return text.replace(_MARK, f"{_MARK}1").replace("\0", f"{_MARK}0")
    return text


def unkept(text: str) -> str:
    """Give a text of a record as it was before `kept`."""
    if _MARK in text:
        return text.replace(f"{_MARK}0", "\0").replace(f"{_MARK}1", _MARK)
    return text


def kept_key(key: str) -> str:
    """Give the key of a record so that an index takes it: a very long one is cut and hashed."""
    text = kept(key)
    if 4 * len(text) <= _LONGEST_KEY or len(text.encode()) <= _LONGEST_KEY:
        return text
    return f"{text[: _LONGEST_KEY // 8]}#{sha256(text.encode()).hexdigest()}"


def json_text(value: object) -> str:
    """Write JSON into a column of text."""
    return _ENCODER.encode(value).decode()
