"""What is written where a document changes: the fields that changed, and no others."""

from collections.abc import Mapping
from typing import Any

import msgspec

from headway.adapters.mongodb.values import Raw, json_of, kept_value
from headway.core.writes import Document

Change = dict[str, Any] | list[dict[str, Any]]


def is_plain(field: str) -> bool:
    """Say whether the name of a field means nothing else to MongoDB."""
    return bool(field) and field[0] != "$" and "." not in field


def change(raw: Raw, before: Document, after: Document) -> Change | None:
    """Give the update that makes one document of another; None: they are the same.

    `before` is what `raw` is shown as.
    """
    values: dict[str, Any] = {}
    for field, value in after.items():
        kept = kept_value(field, value)
        # A time is kept to the millisecond: written with more, it may still be the same.
        if field not in before or (
            differs(before[field], value) and differs(before[field], json_of(kept))
        ):
            values[field] = _typed(raw[field], kept) if field in raw else kept
    return setting(values) if values else None


def _typed(raw: Any, value: Any) -> Any:
    """Give a value in which everything that is as it was shown is as it is in the database."""
    if not differs(json_of(raw), value):
        return raw
    if isinstance(raw, Mapping) and isinstance(value, dict):
        return {
            field: _typed(raw[field], each) if field in raw else each
            for field, each in value.items()
        }
    if isinstance(raw, list) and isinstance(value, list):
        return _typed_list(raw, value)
    return value


def _typed_list(raw: list[Any], value: list[Any]) -> list[Any]:
    """Know things by their places, and where they have moved, by what they are."""
    moved = {_json(json_of(each)): each for each in reversed(raw) if json_of(each) is not None}
    typed = []
    for at, each in enumerate(value):
        there = raw[at] if at < len(raw) else each
        if differs(json_of(there), each) or at >= len(raw):
            there = moved.get(_json(each), there)
        typed.append(_typed(there, each))
    return typed


def setting(values: Mapping[str, Any]) -> Change:
    """Give the update that sets fields, whatever their names."""
    if all(map(is_plain, values)):
        return {"$set": dict(values)}
    return [
        {"$set": {field: {"$literal": value}}}
        if is_plain(field)
        else {
            "$replaceWith": {
                "$setField": {
                    "field": {"$literal": field},
                    "input": "$$ROOT",
                    "value": {"$literal": value},
                }
            }
        }
        for field, value in values.items()
    ]


def differs(before: Any, after: Any) -> bool:
    """Say whether two values are different JSON; unlike for Python, 1 is not true."""
    if type(before) is not type(after):
        return True
    if isinstance(before, dict | list):
        return _json(before) != _json(after)
    return bool(before != after)


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
