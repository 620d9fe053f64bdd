"""What documents and published data can hold on every engine: JSON, with numbers of 64 bits.

Values that an engine would change, drop or refuse are refused where they are written, with the name
of the field.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from headway.core.errors import UnstorableError

_WIDEST = 1 << 63
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19
"""A number of so many digits, whichever they are, may need more than 64 bits."""
_BYTES = (bytes, bytearray, memoryview)
_NOT_JSON = (*_BYTES, Decimal)
_AS_TEXT = frozenset({datetime, date, time, timedelta, UUID})
"""What JSON carries as texts, as everybody expects."""
_SETS = (set, frozenset)
_CONTAINERS = (list, tuple, *_SETS)
_DEEP = "values that are nested too deeply"

_Wrong = Callable[[Any], str | None]
"""Says what is wrong with a value or with the name of a field."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What must not be among the values and the names of fields."""

    value: _Wrong
    name: _Wrong
    typed: "Rule | None" = None
    """For the fields of a Struct or dataclass, where another rule holds for them."""


def copied(document: Any, whose: str) -> dict[str, Any]:
    """Keep what was written as it was then.

    Raises:
        UnstorableError: Part of it is no JSON.
        TypeError: All of it is no object.
    """
    try:
        data = msgspec.json.encode(document)
        copy = msgspec.json.decode(data)
    except Exception as error:  # whatever a value of the user's own raises
        raise UnstorableError(whose, *unwritten(document, STORABLE, error)) from error
    if not isinstance(copy, dict):
        raise TypeError(f"a document is a dict, not {type(document).__name__}: {document!r:.80}")
    if copy == document and _LONG not in data.translate(_DIGITS):
        return copy
    if wrong := changed(document, data, copy, STORABLE):
        raise UnstorableError(whose, *wrong)
    return copy


def is_plain(data: dict[Any, Any]) -> bool:
    """Say whether JSON carries data as it is; False where it takes a copy to know.

    Publishing is frequent, nearly all data is plain, and a copy takes two to four times as long.
    """
    for name, value in data.items():
        if type(name) is not str:
            return False
        # Texts first and here: a call for each field would cost as much as a copy.
        if type(value) is not str and value is not None and not _is_plain_value(value):
            return False
    return True


def _is_plain_value(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return bool(-_WIDEST <= value < _WIDEST)
    if kind is float:
        return math.isfinite(value)
    if kind is dict:
        return is_plain(value)
    if kind is list:
        return all(map(_is_plain_value, value))
    return kind is bool or kind is str or value is None


def changed(value: Any, data: bytes, copy: Any, rule: Rule) -> tuple[str, str] | None:
    """Give the first field that `data` or its `copy` do not hold as it was, and why.

    Most values are equal to their copies, and only numbers can be too long then. Each field is
    searched only where that is not so: publishing is too frequent for it.
    """
    if _LONG not in data.translate(_DIGITS) and (copy == value or _is_same(value, copy)):
        return None
    return _found(value, rule)


def _is_same(value: Any, copy: Any) -> bool:
    """Say whether this is surely a faithful copy; False where it takes a search to know."""
    kind = type(value)
    if kind is dict:
        return len(value) == len(copy) and all(
            name in copy and _is_same(each, copy[name]) for name, each in value.items()
        )
    if kind is list or kind is tuple:
        return all(map(_is_same, value, copy))
    if kind in _SETS:
        return False
    if kind in _AS_TEXT or value == copy:
        return True
    try:
        return bool(copy == msgspec.to_builtins(value, builtin_types=_NOT_JSON))
    except Exception:  # noqa: BLE001 (types of the user's own)
        return False


def unwritten(value: Any, rule: Rule, error: Exception) -> tuple[str, str]:
    """Give the field that could not be written as JSON, and why."""
    otherwise = _DEEP if isinstance(error, RecursionError) else str(error)
    return _found(value, rule) or ("", otherwise)


def _found(value: Any, rule: Rule) -> tuple[str, str] | None:
    try:
        return field_with(value, rule)
    except RecursionError:
        return "", _DEEP


def unstorable(value: Any) -> str | None:
    """Say what is wrong with a single value."""
    if isinstance(value, _BYTES):
        return "bytes, which JSON does not know: write a text, for instance base64"
    if isinstance(value, Decimal):
        return "a Decimal, which JSON would carry as a text: write str(value), or whole cents"
    if isinstance(value, _SETS):
        return "a set, which JSON would carry as a list in any order: write sorted(value)"
    return _unwritable(value)


def _unwritable(value: Any) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}, for which JSON has no word: write null, or a text"
    if isinstance(value, int) and not -_WIDEST <= value < _WIDEST:
        return "a whole number of more than 64 bits: write a text"
    if isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value):
        return "half a character (a lone surrogate), which is no text: leave it out"
    return None


def _no_name(name: Any) -> str | None:
    if not isinstance(name, str):
        return f"the key {name!r}, which JSON would carry as a text: use texts as keys"
    return _unwritable(name)


STORABLE = Rule(value=unstorable, name=_no_name)
PUBLISHABLE = Rule(value=unstorable, name=_no_name, typed=Rule(value=_unwritable, name=_unwritable))
"""The fields of a Struct may hold bytes, Decimal and other keys: the consumer reads them back by
its own type."""


def field_with(value: Any, rule: Rule) -> tuple[str, str] | None:
    """Give the way to the first part of a value that is wrong, and what is wrong with it.

    >>> field_with({"a": [1, {"b": float("inf")}]}, STORABLE)
    ('a[1].b', 'inf, for which JSON has no word: write null, or a text')
    """
    return next(_walk(value, "", rule, ()), None)


def _walk(value: Any, at: str, rule: Rule, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    if id(value) in above:
        yield at, "itself, so that it has no end"
    elif isinstance(value, dict):
        yield from _walk_dict(value, at, rule, (*above, id(value)))
    elif (what := rule.value(value)) is not None:
        yield at, what
    elif isinstance(value, _CONTAINERS):
        for number, each in enumerate(value):
            yield from _walk(each, f"{at}[{number}]", rule, (*above, id(value)))
    elif not isinstance(value, str | int | float | None):
        yield from _walk_into(value, at, rule)


def _walk_dict(
    value: dict[Any, Any], at: str, rule: Rule, above: tuple[int, ...]
) -> Iterator[tuple[str, str]]:
    names: set[str] = set()
    for name, each in value.items():
        way = f"{at}.{name}" if at else f"{name}"
        if (what := rule.name(name)) is not None:
            yield way, what
        if str(name) in names:
            yield way, f"the key {name!r} twice, as a text and otherwise: JSON would keep one"
        names.add(str(name))
        yield from _walk(each, way, rule, above)


def _walk_into(value: Any, at: str, rule: Rule) -> Iterator[tuple[str, str]]:
    """Look at what an object is written as."""
    try:
        if isinstance(value, msgspec.Raw):
            plain = msgspec.json.decode(value)
        else:
            plain = msgspec.to_builtins(value, builtin_types=_NOT_JSON)
    except Exception as error:  # noqa: BLE001 (types of the user's own)
        yield (
            at,
            f"a value of type {type(value).__name__}, which cannot be written as JSON: {error}",
        )
    else:
        if type(plain) is not type(value):
            yield from _walk(plain, at, rule.typed or rule, ())
