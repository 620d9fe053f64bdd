"""The types that `data=` takes, and how JSON is read into them.

pydantic is never imported: a model that a user gives brings its own validator.
"""

import dataclasses
import typing
from collections.abc import Collection
from functools import cached_property
from typing import Any, Protocol

import msgspec

_SHOWN = 5
"""Errors of one model that are named."""


class Decoder(Protocol):
    """Reads the data of an event."""

    def decode(self, buf: Any, /) -> Any:
        """Read JSON; what does not fit the type is msgspec.ValidationError."""
        ...


class PydanticDecoder:
    """Reads JSON into a pydantic model."""

    __slots__ = ("_model",)

    def __init__(self, model: Any) -> None:
        self._model = model

    def decode(self, buf: Any, /) -> Any:
        try:
            # Asked for each time: a model whose types come later replaces it.
            return self._model.__pydantic_validator__.validate_json(bytes(buf))
        except ValueError as error:
            if not hasattr(error, "errors"):
                raise
            raise msgspec.ValidationError(_what_is_wrong(error)) from None


def _what_is_wrong(error: Any) -> str:
    """Name every field that is wrong, as msgspec does; the values may be secrets."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    named = [f"{each['msg']} - at `{_path(each['loc'])}`" for each in found[:_SHOWN]]
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(named) + more


def _path(location: Collection[str | int]) -> str:
    return "$" + "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in location)


def event_of(event_type: Any, data: Any) -> tuple[str, Any]:
    """Give the type and the data of an event: both are in an object of a type of data.

    >>> class OrderPlaced(msgspec.Struct):
    ...     order: str
    >>> event_of(OrderPlaced("7"), None)
    ('OrderPlaced', OrderPlaced(order='7'))
    """
    if data is None and not isinstance(event_type, str) and is_data_type(type(event_type)):
        return type(event_type).__name__, event_type
    return event_type, data


def is_data_type(given: Any) -> bool:
    """Say whether it is a Struct, a dataclass, a TypedDict or a pydantic model, and no instance."""
    kind = typing.get_origin(given) or given
    if not isinstance(kind, type) or kind.__module__.partition(".")[0] in {"msgspec", "pydantic"}:
        return False  # of their own they have base classes only
    return (
        issubclass(kind, msgspec.Struct)
        or dataclasses.is_dataclass(kind)
        or _is_typed_dict(kind)
        or _is_pydantic(kind)
    )


def decoder(given: Any) -> Decoder:
    """Give what reads JSON into such a type. Raises whatever msgspec says about it."""
    kind = typing.get_origin(given) or given
    return PydanticDecoder(given) if _is_pydantic(kind) else msgspec.json.Decoder(given)


def fields(given: Any) -> Collection[str] | None:
    """Name what can be read of a value of such a type; None: it takes any field."""
    kind = typing.get_origin(given) or given
    if _is_typed_dict(kind):
        return frozenset(kind.__required_keys__ | kind.__optional_keys__)
    if getattr(kind, "model_config", {}).get("extra") == "allow" and _is_pydantic(kind):
        return None
    declared: Any = (
        getattr(kind, "__struct_fields__", None)
        or getattr(kind, "__pydantic_fields__", None)
        or getattr(kind, "__dataclass_fields__", ())
    )
    properties = (property, cached_property)
    made = [
        name
        for base in kind.__mro__
        for name in vars(base)
        if isinstance(vars(base)[name], properties)
    ]
    return frozenset((*declared, *made))


def _is_typed_dict(kind: type) -> bool:
    return issubclass(kind, dict) and hasattr(kind, "__required_keys__")


def _is_pydantic(kind: type) -> bool:
    return hasattr(kind, "__pydantic_validator__")
