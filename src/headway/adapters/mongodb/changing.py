"""What is written where a document changes: the fields that changed, and no others."""

from collections.abc import Mapping
from typing import Any

import msgspec

from headway.adapters.mongodb.values import json_of, kept_value
from headway.core.writes import Document

Change = dict[str, Any] | list[dict[str, Any]]


def is_plain(field: str) -> bool:
    """Say whether the name of a field means nothing else to MongoDB."""
    return bool(field) and field[0] != "$" and "." not in field


def change(before: Document, after: Document) -> Change | None:
    """Give the update that makes one document of another; None: they are the same."""
    values: dict[str, Any] = {}
    for field, value in after.items():
        kept = kept_value(field, value)
        # A time is kept to the millisecond: written with more, it may still be the same.
        if field not in before or (
            differs(before[field], value) and differs(before[field], json_of(kept))
        ):
            values[field] = kept
    return setting(values) if values else None


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
        return msgspec.json.encode(before) != msgspec.json.encode(after)
    return bool(before != after)
