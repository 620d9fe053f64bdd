"""What a document can hold on every store: JSON, with whole numbers of 64 bits.

What a store would have to change, to drop or to break over is refused where it is written, with the
name of the field.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from headway.core.errors import UnstorableError

_WIDEST = 1 << 63
_LONG = re.compile(rb"[0-9]{19}")
_BYTES = (bytes, bytearray, memoryview)
_CONTAINERS = (list, tuple, set, frozenset)

_Wrong = Callable[[Any], str | None]
"""Says what is wrong with a value, a container or the name of a field."""


def copied(document: Any, whose: str) -> dict[str, Any]:
    """Keep what was written as it was then.

    Raises:
        UnstorableError: Part of it is no JSON.
        TypeError: All of it is no object.
    """
    try:
        data = msgspec.json.encode(document)
    except Exception as error:  # whatever a value of the user's own raises
        raise UnstorableError(whose, *_found(document, str(error))) from error
    copy = msgspec.json.decode(data)
    if not isinstance(copy, dict):
        raise TypeError(f"a document is a dict, not {type(document).__name__}: {document!r:.80}")
    # Where nothing has become something else, only numbers can be too long.
    if copy != document or _LONG.search(data):
        wrong = field_with(document, unstorable)
        if wrong is not None:
            raise UnstorableError(whose, *wrong)
    return copy


def unstorable(value: Any) -> str | None:
    """Say what is wrong with a single value."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}, for which JSON has no word: write null, or a text"
    if isinstance(value, int) and not -_WIDEST <= value < _WIDEST:
        return "a whole number of more than 64 bits: write a text"
    if isinstance(value, _BYTES):
        return "bytes, which JSON does not know: write a text, for instance base64"
    if isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value):
        return "half a character (a lone surrogate), which is no text: leave it out"
    return None


def field_with(value: Any, wrong: _Wrong) -> tuple[str, str] | None:
    """Give the way to the first part of a document that is wrong, and what is wrong with it.

    >>> field_with({"a": [1, {"b": float("inf")}]}, unstorable)
    ('a[1].b', 'inf, for which JSON has no word: write null, or a text')
    """
    return next(_walk(value, "", wrong), None)


def _walk(value: Any, at: str, wrong: _Wrong) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, each in value.items():
            way = f"{at}.{name}" if at else f"{name}"
            if (what := wrong(name)) is not None:
                yield way, what
            yield from _walk(each, way, wrong)
    elif isinstance(value, _CONTAINERS):
        for number, each in enumerate(value):
            yield from _walk(each, f"{at}[{number}]", wrong)
    elif (what := wrong(value)) is not None:
        yield at, what
    elif not isinstance(value, str | int | float | None):
        yield from _walk_into(value, at, wrong)


def _walk_into(value: Any, at: str, wrong: _Wrong) -> Iterator[tuple[str, str]]:
    """Look at what an object is written as."""
    try:
        plain = msgspec.to_builtins(value, builtin_types=_BYTES)
    except Exception as error:  # noqa: BLE001 (types of the user's own)
        yield (
            at,
            f"a value of type {type(value).__name__}, which cannot be written as JSON: {error}",
        )
    else:
        if type(plain) is not type(value):
            yield from _walk(plain, at, wrong)


def _found(document: Any, otherwise: str) -> tuple[str, str]:
    """Find out where the fault is; what is nested without end is only said to be wrong."""
    try:
        return field_with(document, unstorable) or ("", otherwise)
    except RecursionError:
        return "", "values that are nested too deeply"
