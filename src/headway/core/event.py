"""An event as it travels: plain JSON that any client can write, and the identity that it keeps.

On the wire an event is an object with `event_type`, `event_id`, `timestamp`, `version` and `data`.
Only `event_type` is needed. Our own facts travel beside it, never inside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from headway.core.errors import MalformedEventError

FIRST_GENERATION = "0"
"""The generation of an event that nobody has sent again on purpose."""

_IDS_SHOWN = 3
_DIGITS_OF_HASH = 16


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler is given."""

    event_type: str
    event_id: str = ""
    timestamp: str = ""
    version: str = "1.0"
    data: dict[str, Any] = msgspec.field(default_factory=dict)


class _Wire(msgspec.Struct, frozen=True):
    """The same with its data unread, which only the subscription knows the type of."""

    event_type: str
    event_id: str | None = None
    timestamp: str | None = None
    version: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"{}")


_WIRE = msgspec.json.Decoder(_Wire)
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_ENCODER = msgspec.json.Encoder()


def decode(body: bytes) -> Event:
    """Read an event, or say why these bytes are none."""
    try:
        wire = _WIRE.decode(body)
        data = _OBJECT.decode(wire.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEventError(_why(error)) from None
    if not wire.event_type:
        raise MalformedEventError("event_type is empty: name the kind of event")
    return Event(
        event_type=wire.event_type,
        event_id=wire.event_id or "",
        timestamp=wire.timestamp or "",
        version=wire.version or "1.0",
        data=data,
    )


def encode(event: Event) -> bytes:
    return _ENCODER.encode(event)


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    return str(error)


@dataclass(frozen=True, slots=True)
class DoneKey:
    """Under which an event is remembered as done: a redelivery has the same, a replay another."""

    service: str
    event_type: str
    idempotency_key: str
    generation: str = FIRST_GENERATION

    def __str__(self) -> str:
        # The idempotency key may hold anything, so it comes last: the text stays unambiguous.
        return f"{self.service}/{self.event_type}/{self.generation}/{self.idempotency_key}"


def idempotency_key(service: str, ids: Sequence[str]) -> str:
    """Name the work by the documents that it is about: `chunking-a-b-c`.

    Of more than three ids the first three are shown and all are hashed, so that batches which only
    begin alike are told apart, and the key stays short.

    >>> idempotency_key("chunking", ["a", "b"])
    'chunking-a-b'
    """
    shown = "-".join((service, *ids[:_IDS_SHOWN]))
    if len(ids) <= _IDS_SHOWN:
        return shown
    # Lengths keep ["ab", "c"] and ["a", "bc"] apart.
    whole = "".join(f"{len(one)}:{one}" for one in ids)
    return f"{shown}-{sha256(whole.encode()).hexdigest()[:_DIGITS_OF_HASH]}"
