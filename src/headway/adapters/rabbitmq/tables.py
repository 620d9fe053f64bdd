"""Tables of headers, read so that nothing in them keeps a message back.

pika raises for what other clients may well write: a timestamp in milliseconds, a number that is
none, tables inside of tables inside of tables. Here such a value is read as something that can be
shown, and whatever is longer than it should be raises.
"""

from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from struct import Struct
from typing import Any

_LENGTH = Struct(">L").unpack_from
_DEEPEST = 32
"""Tables inside of tables up to which they are read; those below are kept as bytes."""
_NUMBERS = {
    ord("t"): Struct(">?"),
    ord("b"): Struct(">b"),
    ord("B"): Struct(">B"),
    ord("U"): Struct(">h"),
    ord("s"): Struct(">h"),
    ord("u"): Struct(">H"),
    ord("I"): Struct(">i"),
    ord("i"): Struct(">I"),
    ord("l"): Struct(">q"),
    ord("L"): Struct(">q"),
    ord("f"): Struct(">f"),
    ord("d"): Struct(">d"),
    ord("T"): Struct(">Q"),
    ord("D"): Struct(">Bi"),
}
_WITH_LENGTH = frozenset(b"SxAF")
"""Text, bytes, array, table."""
_TEXT, _ARRAY, _TABLE, _INSTANT, _DECIMAL, _NOTHING = b"SAFTDV"
_HIGHEST = 2**63 - 1

Table = dict[str, Any]


def end_of(data: bytes, kind: int, at: int) -> int:
    """Say where a value ends, without reading it."""
    if kind in _WITH_LENGTH:
        return at + 4 + int(_LENGTH(data, at)[0])
    if kind == _NOTHING:
        return at
    if kind not in _NUMBERS:
        raise ValueError(f"{chr(kind)!r} is no kind of value")
    return at + _NUMBERS[kind].size


def value_at(data: bytes, kind: int, at: int, depth: int = 0) -> Any:
    """Read a value, whatever it is."""
    end = end_of(data, kind, at)
    if end > len(data):
        raise ValueError("a value is longer than its table")
    if kind in _WITH_LENGTH:
        return _long(data[at + 4 : end], kind, depth)
    if kind == _NOTHING:
        return None
    parts = _NUMBERS[kind].unpack_from(data, at)
    if kind == _DECIMAL:
        return Decimal(parts[1]).scaleb(-parts[0])
    return _instant(parts[0]) if kind == _INSTANT else _number(parts[0])


def table_of(data: bytes, depth: int = 0) -> Table:
    """Read a table, without the length before it."""
    table: Table = {}
    at, end = 0, len(data)
    while at < end:
        begin, at = at + 1, at + 1 + data[at]
        name, kind = data[begin:at].decode(errors="backslashreplace"), data[at]
        table[name] = value_at(data, kind, at + 1, depth)
        at = end_of(data, kind, at + 1)
    return table


def _long(data: bytes, kind: int, depth: int) -> Any:
    if kind == _TEXT:
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data
    if kind not in {_ARRAY, _TABLE} or depth >= _DEEPEST:
        return data
    if kind == _TABLE:
        return table_of(data, depth + 1)
    values: list[Any] = []
    at, end = 0, len(data)
    while at < end:
        values.append(value_at(data, data[at], at + 1, depth + 1))
        at = end_of(data, data[at], at + 1)
    return values


def _number(value: object) -> Any:
    """Give a number that pika can write again; it has no fractions."""
    if not isinstance(value, float):
        return value
    return int(value) if isfinite(value) and value.is_integer() else repr(value)


def _instant(seconds: int) -> Any:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        # Others write milliseconds or more here.
        return seconds if seconds <= _HIGHEST else str(seconds)
