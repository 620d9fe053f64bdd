"""Bytes from outside become events, or a refusal that names the field."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import msgspec

from headway import HeadwayError
from headway.systems.ledger.events import Event
from headway.systems.ledger.wording import in_plain_words

T = TypeVar("T")

_EVENT: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_PATH = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
_NAMED_FIELD = re.compile(r"^Object (?:missing required|contains unknown) field `(.*?)`", re.DOTALL)
_LONGEST_MESSAGE = 300


class RefusedEventError(HeadwayError):
    """An event that cannot be stored as it is; sending it again unchanged will not help."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message[:_LONGEST_MESSAGE])


class MalformedBodyError(HeadwayError):
    """A body that is no JSON at all."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the body is not JSON that can be read: {why[:_LONGEST_MESSAGE]}")


class Bulk(msgspec.Struct, forbid_unknown_fields=True):
    """Many events in one request; each is decoded on its own, so that one cannot spoil the rest."""

    events: list[msgspec.Raw]


class TooManyEventsError(HeadwayError):
    """A bulk of more events than one request may have."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} events in one bulk")


_BULK = msgspec.json.Decoder(Bulk)


class _Item:
    """One item of a bulk, of any kind."""


class _Items(msgspec.Struct):
    events: list[_Item]


_ITEM = _Item()


def decode_event(body: bytes | msgspec.Raw, *, at: str = "") -> Event:
    """Decode one event; `at` is where it stands in a larger body."""
    return _decode(_EVENT.decode, bytes(body), at)


def decode_bulk(body: bytes, *, limit: int) -> list[msgspec.Raw]:
    """Split a bulk into its events.

    Raises:
        TooManyEventsError: There are more than `limit`.
    """
    if body.count(b",") >= limit:
        _count(body, limit)
    return _decode(_BULK.decode, body, "").events


def _count(body: bytes, limit: int) -> None:
    """Stop at the first item too many, before there is an object for each of millions."""
    found = 0

    def item(_type: type, _value: object) -> _Item:
        nonlocal found
        found += 1
        if found > limit:
            raise TooManyEventsError(limit)
        return _ITEM

    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # told apart later
        msgspec.json.decode(body, type=_Items, dec_hook=item)


def encode_event(event: Event) -> str:
    return msgspec.json.encode(event).decode()


def _decode(decode: Callable[[bytes], T], body: bytes, at: str) -> T:
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), at) from None
    except RecursionError:
        raise MalformedBodyError("it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBodyError(str(error)) from None


def _refusal(message: str, at: str) -> RefusedEventError:
    """Take msgspec's sentence apart: what is wrong, and the path to it."""
    path = _PATH.search(message)
    named = _NAMED_FIELD.search(message)
    parts = (at, path[1] if path else "", named[1] if named else "")
    field = ".".join(part for part in parts if part)
    what = in_plain_words(_PATH.sub("", message))
    return RefusedEventError(field[:_LONGEST_MESSAGE] or "body", what)
