"""What a handler writes to documents: data, applied by a store inside the commit.

A document is a JSON object that keeps its id under `_id`. `applied` is the one meaning of every
write; stores that cannot call it are held equal to it by their conformance tests.
"""

from collections.abc import Mapping
from math import inf, isinf, ulp
from sys import float_info
from typing import Any

import msgspec

from headway.core.errors import ConditionLostError, DocumentNotFoundError, UnstorableError
from headway.core.storable import unstorable

Document = dict[str, Any]
ID = "_id"
_FEW_FIELDS = 50


class InsertNew(msgspec.Struct, frozen=True):
    """Insert a document unless one with its id is there: then it is skipped, and counted."""

    collection: str
    document: Document


class Add(msgspec.Struct, frozen=True):
    """Append a document that nobody has to find by its id."""

    collection: str
    document: Document


class Update(msgspec.Struct, frozen=True):
    """Change fields of a document, if the expected ones still hold what they are expected to."""

    collection: str
    id: str
    changes: Document
    expect: Document | None = None


class Increment(msgspec.Struct, frozen=True):
    """Add to a number; a document or a field that is missing counts as 0."""

    collection: str
    id: str
    field: str
    by: int | float = 1


Write = InsertNew | Add | Update | Increment


def target(write: Write) -> str:
    """Give the id of the document that a write is about."""
    if isinstance(write, InsertNew | Add):
        return str(write.document[ID])
    return write.id


def applied(write: Write, current: Document | None) -> Document:
    """Give the document that a write makes of the current one (None: there is none).

    Raises:
        ConditionLostError: An expected field holds something else.
        DocumentNotFoundError: The document to update is not there.
        UnstorableError: A number has become too large.
    """
    match write:
        case InsertNew() | Add():
            return write.document if current is None else current
        case Increment():
            sum_ = ((current or {}).get(write.field) or 0) + write.by
            if (wrong := unstorable(sum_)) is not None:
                raise UnstorableError(f"{write.collection}/{write.id}", write.field, wrong)
            return {**(current or {ID: write.id}), write.field: sum_}
        case Update():
            if current is None:
                raise DocumentNotFoundError(write.collection, [write.id])
            for field, expected in (write.expect or {}).items():
                if current.get(field) != expected:
                    raise ConditionLostError(
                        write.collection, write.id, field, expected, current.get(field)
                    )
            return {**current, **write.changes}


def matches(document: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Say whether all the given fields hold the given values, as JSON compares them.

    None also means absent. A number is the same however it is written, and true is no number.

    >>> [matches({"n": held}, {"n": 1}) for held in (1, 1.0, True, "1")]
    [True, True, False, False]
    """
    return all(_is_same(document.get(field), value) for field, value in where.items())


def _is_same(held: Any, value: Any) -> bool:
    if isinstance(held, dict) and isinstance(value, dict):
        return held.keys() == value.keys() and all(
            _is_same(each, value[field]) for field, each in held.items()
        )
    if isinstance(held, list) and isinstance(value, list):
        return len(held) == len(value) and all(map(_is_same, held, value))
    return bool(held == value) and isinstance(held, bool) is isinstance(value, bool)


def is_exact(where: Mapping[str, Any]) -> bool:
    """Say whether SQL compares these values as `matches` does: then the database can count.

    >>> is_exact({"status": "new", "owner": None}), is_exact({"n": 1}), is_exact({"tags": []})
    (True, False, False)
    """
    return len(where) <= _FEW_FIELDS and all(
        value is None or isinstance(value, bool) or (isinstance(value, str) and "\0" not in value)
        for value in where.values()
    )


def nearby(number: float) -> tuple[float, float]:
    """Give the range in which a store finds a number, however it is written.

    Stores read the digits of a number in ways of their own, which may differ in the last bits.
    """
    try:
        near = float(number)
    except OverflowError:
        near = inf if number > 0 else -inf
    if isinf(near):
        return (float_info.max, inf) if near > 0 else (-inf, -float_info.max)
    return near - 4 * ulp(near), near + 4 * ulp(near)
