"""What comes beside a message, read from its bytes: the headers, and the message id."""

from struct import Struct
from typing import Any

import pika
from pika.data import decode_table

_CONTENT_TYPE, _HEADERS, _DELIVERY_MODE, _MESSAGE_ID = 1 << 15, 1 << 13, 1 << 12, 1 << 7
_RARE = 1 << 14 | 0b1111 << 8 | 1
"""Properties that come before the message id and that hardly anybody sets; or more than 15."""
_FLAGS = Struct(">H").unpack_from
_LENGTH = Struct(">L").unpack_from
_TEXT = ord("S")
_LONG_KINDS = frozenset(b"SAFx")
"""Kinds of values that begin with their length: text, array, table, bytes."""
_NUMBERS = {ord("l"): Struct(">q"), ord("I"): Struct(">i"), ord("b"): Struct(">b")}
_OURS = b"headway-"
_SMALL = 64
_MOST_TABLES = 1_000

Headers = dict[str, Any]


def _walk(data: bytes) -> Headers:
    """Read a table; of what is not ours, such as the broker's own history, nothing is made."""
    table: Headers = {}
    at, end = 4, len(data)
    while at < end:
        begin, at = at + 1, at + 1 + data[at]
        key, kind = data[begin:at], data[at]
        at += 1
        if kind in _LONG_KINDS:
            begin, at = at + 4, at + 4 + _LENGTH(data, at)[0]
            if key.startswith(_OURS):
                if kind != _TEXT:
                    return _by_pika(data)
                table[key.decode()] = data[begin:at].decode()
        elif kind in _NUMBERS:
            read = _NUMBERS[kind]
            table[key.decode()] = read.unpack_from(data, at)[0]
            at += read.size
        else:
            return _by_pika(data)
    return table


def _by_pika(data: bytes) -> Headers:
    table: Headers = decode_table(data, 0)[0]
    return table


class PropertiesReader:
    """Remembers small tables: those of new messages are all the same."""

    def __init__(self) -> None:
        self._tables: dict[bytes, Headers] = {}

    def read(self, data: bytes) -> tuple[Headers | None, str | None]:
        """Give headers and message id; whatever cannot be read raises."""
        (flags,) = _FLAGS(data)
        if flags & _RARE:
            properties = pika.BasicProperties()
            properties.decode(data)
            return properties.headers, properties.message_id
        at = 2
        if flags & _CONTENT_TYPE:
            at += 1 + data[at]
        headers = None
        if flags & _HEADERS:
            after = at + 4 + _LENGTH(data, at)[0]
            headers = self._table(data[at:after])
            at = after
        if flags & _DELIVERY_MODE:
            at += 1
        if not flags & _MESSAGE_ID:
            return headers, None
        return headers, data[at + 1 : at + 1 + data[at]].decode()

    def _table(self, data: bytes) -> Headers:
        known = self._tables.get(data)
        if known is not None:
            return known
        table = _walk(data)
        if len(data) <= _SMALL and len(self._tables) < _MOST_TABLES:
            self._tables[data] = table
        return table
