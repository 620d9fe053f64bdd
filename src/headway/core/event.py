"""An event as it travels: plain JSON that any client can write, and the identity that it keeps.

On the wire an event is an object with `event_type`, `event_id`, `timestamp`, `version` and `data`.
Only `event_type` is needed. Our own facts travel beside it, never inside it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from headway.core.data_type import Decoder
from headway.core.errors import MalformedEventError, UnsendableError
from headway.core.storable import PUBLISHABLE, changed, is_plain, unwritten

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers bring it, and it is not needed otherwise

    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

FIRST_GENERATION = "0"
"""The generation of an event that nobody has sent again on purpose."""

LONGEST_NAME = 1_000
"""Bytes of an operation: it travels beside its event, and is a key in every store."""
_SHOWN_OF_A_NAME = 64
_SWEPT = re.compile(r"s[0-9]+(@[0-9.TZ]+)?")
_IDS_SHOWN = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_HEX = re.compile(r"[0-9a-f]{20,}")
_DIGITS_OF_HASH = 16


def is_first_run(generation: str) -> bool:
    """Say whether operations come into being with this generation: so each is accepted once.

    A sweeper's operation has the generation of its document and the moment of its claim, and is
    published until that is known to have succeeded. Under any other generation somebody sent an
    operation again on purpose.

    >>> [is_first_run(each) for each in ("0", "s2@20261116T103015.000Z")]
    [True, True]
    >>> is_first_run("0123456789abcdef01234567.1")
    False
    """
    return generation == FIRST_GENERATION or _SWEPT.fullmatch(generation) is not None


class Event(msgspec.Struct, Generic[T_co], frozen=True):
    """What a handler is given: an `Event[Order]` where the subscription says `data=Order`."""

    event_type: str
    event_id: str = ""
    timestamp: str = ""
    version: str = "1.0"
    data: T_co = msgspec.field(default_factory=dict)  # type: ignore[assignment]
    """A dict, or what the subscription said that it should be."""


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """The same with its data unread, which only the subscription knows the type of."""

    event_type: str
    event_id: str | None = None
    timestamp: str | None = None
    version: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"{}")


class _Typed(msgspec.Struct, frozen=True, gc=False):
    """Only the type of an event, whatever else is wrong with it."""

    event_type: str


_ENVELOPE = msgspec.json.Decoder(Envelope)
_TYPED = msgspec.json.Decoder(_Typed)
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_JSON = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()


def open_envelope(body: bytes) -> Envelope:
    """Read everything but the data, or say why these bytes are no event."""
    try:
        envelope = _ENVELOPE.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEventError(_why(error)) from None
    if not envelope.event_type:
        raise MalformedEventError("event_type is empty: name the kind of event")
    return envelope


def type_of(body: bytes) -> str:
    """Give the type of an event that `open_envelope` refuses; empty: the bytes name none."""
    try:
        return _TYPED.decode(body).event_type
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def read_data(envelope: Envelope, data: Decoder | None = None) -> Event:
    """Read the data too, as an object or into a type of the user's own.

    What does not fit that type raises msgspec.ValidationError: the bytes are an event, only not
    one that this handler can work with.
    """
    if data is not None:
        contents = data.decode(envelope.data)
    else:
        try:
            contents = _OBJECT.decode(envelope.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedEventError(_why(error)) from None
    return Event(
        envelope.event_type,
        envelope.event_id or "",
        envelope.timestamp or "",
        envelope.version or "1.0",
        contents,
    )


def decode(body: bytes) -> Event:
    """Read an event, or say why these bytes are none."""
    return read_data(open_envelope(body))


def encode(event: Event) -> bytes:
    return _ENCODER.encode(event)


def publishable(event: Event, *, any_data: bool = False) -> bytes:
    """Encode a new event, and refuse data that its consumers would get as something else.

    Raises:
        UnsendableError: A field holds what JSON would change or cannot carry.
        MalformedEventError: The data is no object, and only consumers with `data=` could read it.
    """
    try:
        body = _ENCODER.encode(event)
        data = event.data
        if type(data) is dict and type(event.version) is str and is_plain(data):
            return body
        envelope = _ENVELOPE.decode(body)
        copy = _JSON.decode(envelope.data)
    except msgspec.ValidationError as error:  # a version that is no text
        raise UnsendableError(f"{event.event_type} cannot be published: {error}") from error
    except Exception as error:  # whatever a value of the user's own raises
        if (plain := _of_pydantic(event.data)) is not None:
            return publishable(msgspec.structs.replace(event, data=plain), any_data=any_data)
        wrong = unwritten(event.data, PUBLISHABLE, error)
        raise UnsendableError.of_field(event.event_type, *wrong) from error
    if not (any_data or isinstance(copy, dict)):
        raise MalformedEventError(
            f"Invalid data of {event.event_type}: data is a JSON object, and this is "
            f"{type(event.data).__name__}. Use a dict, a Struct, a dataclass or a pydantic model."
        )
    if found := changed(event.data, body, copy, PUBLISHABLE):
        raise UnsendableError.of_field(event.event_type, *found)
    return body


def _of_pydantic(data: Any) -> Any:
    """Give what a pydantic model is written as, under the names by which it is read; None: none."""
    serializer = getattr(type(data), "__pydantic_serializer__", None)
    return None if serializer is None else serializer.to_python(data, mode="json", by_alias=True)


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    return str(error)


def new_event_id(now: datetime, token: str) -> str:
    """Make the id of a new event: a UUID whose beginning is the time.

    Ids that follow each other in time lie side by side in an index. Random ones would each touch a
    page of their own, which makes a store several times slower.

    >>> new_event_id(datetime(2026, 1, 17, 5, tzinfo=UTC), "f" * 32)
    '019bca53-1080-7fff-bfff-ffffffffffff'
    """
    milliseconds = (now - _EPOCH) // _MILLISECOND
    digits = token if _HEX.fullmatch(token) else sha256(token.encode()).hexdigest()
    chance = int(digits, 16)
    bits = (milliseconds << 80) | (chance & ((1 << 80) - 1))
    bits = bits & ~(0xF << 76) | (0x7 << 76)  # version
    bits = bits & ~(0x3 << 62) | (0x2 << 62)  # variant
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def short_name(name: str) -> str:
    """Give a name that can travel: of a very long one its beginning, and a digest of all of it.

    The same name gives the same each time, so that a redelivery is recognised.

    >>> short_name("order-1")
    'order-1'
    """
    if len(name) <= LONGEST_NAME // 4 or len(name.encode()) <= LONGEST_NAME:
        return name
    return f"{name[:_SHOWN_OF_A_NAME]}#{sha256(name.encode()).hexdigest()}"


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
    return shown if len(ids) <= _IDS_SHOWN else f"{shown}-{_digest(ids)}"


def exact_key(service: str, ids: Sequence[str]) -> str:
    """Name the same work so that no other has the same name, for records.

    What people are shown does not tell ["a-b", "c"] from ["a", "b-c"].
    """
    shown = idempotency_key(service, ids)
    return shown if len(ids) == 1 else f"{shown}#{_digest(ids)}"


def _digest(ids: Sequence[str]) -> str:
    # Lengths keep ["ab", "c"] and ["a", "bc"] apart.
    whole = "".join(f"{len(one)}:{one}" for one in ids)
    return sha256(whole.encode()).hexdigest()[:_DIGITS_OF_HASH]
