"""What comes beside a message, read from its bytes: the headers, and the message id.

Only what is ours is read, and the count of deliveries. Of all else, such as the broker's own
history or what other programs write, nothing is made: whatever it is, it can do no harm.
"""

from struct import Struct
from typing import Any

from headway.adapters.rabbitmq.tables import end_of, value_at

_CONTENT_TYPE, _HEADERS, _DELIVERY_MODE, _MESSAGE_ID = 1 << 15, 1 << 13, 1 << 12, 1 << 7
_RARE = 1 << 14 | 0b1111 << 8 | 1
"""Properties that come before the message id and that hardly anybody sets; or more than 15."""
_SHORT, _OCTET, _TABLE = range(3)
_BEFORE_THE_ID = (
    (_CONTENT_TYPE, _SHORT),
    (1 << 14, _SHORT),
    (_HEADERS, _TABLE),
    (_DELIVERY_MODE, _OCTET),
    (1 << 11, _OCTET),
    (1 << 10, _SHORT),
    (1 << 9, _SHORT),
    (1 << 8, _SHORT),
)
_FLAGS = Struct(">H").unpack_from
_LENGTH = Struct(">L").unpack_from
_TEXT = ord("S")
_OURS = b"headway-"
_COUNT = b"x-delivery-count"
_SMALL = 64
_MOST_TABLES = 1_000

Headers = dict[str, Any]


def _walk(data: bytes) -> Headers:
    table: Headers = {}
    at, end = 4, len(data)
    while at < end:
        begin, at = at + 1, at + 1 + data[at]
        key, kind = data[begin:at], data[at]
        begin, at = at + 1, end_of(data, kind, at + 1)
        if key.startswith(_OURS) or key == _COUNT:
            is_text = kind == _TEXT
            table[key.decode()] = (
                data[begin + 4 : at].decode() if is_text else value_at(data, kind, begin)
            )
    if at != end:
        raise ValueError("a value is longer than its table")
    return table


class PropertiesReader:
    """Remembers small tables: those of new messages are all the same."""

    def __init__(self) -> None:
        self._tables: dict[bytes, Headers] = {}

    def read(self, data: bytes) -> tuple[Headers | None, str | None]:
        """Give headers and message id; whatever cannot be read raises."""
        (flags,) = _FLAGS(data)
        if flags & _RARE:
            return self._read_rare(flags, data)
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

    def _read_rare(self, flags: int, data: bytes) -> tuple[Headers | None, str | None]:
        if flags & 1:
            raise ValueError("there are more than 15 properties")
        at, headers = 2, None
        for flag, kind in _BEFORE_THE_ID:
            if not flags & flag:
                continue
            if kind == _OCTET:
                at += 1
            elif kind == _SHORT:
                at += 1 + data[at]
            else:
                after = at + 4 + _LENGTH(data, at)[0]
                headers, at = self._table(data[at:after]), after
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
