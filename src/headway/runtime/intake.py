"""What came in from somebody else's loop: for the handler as it is, for a letter as bytes."""

import copy
import json
import marshal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from headway.core.errors import MalformedEventError
from headway.core.event import Event, decode, idempotency_key, short_name
from headway.core.travel import LARGEST_HEADER, Travel, invalid_field
from headway.ports.chance import Chance

TRAVEL_HEADER = "headway-travel"
"""Carries the attempts so far beside a message, as JSON."""

Headers = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """One event, and what is known of its way so far."""

    given: Any
    """What the handler gets first: what the caller gave, or the Event that its bytes are."""
    body: bytes
    """The event as JSON, written before any handler could change it."""
    event_type: str
    key: str
    travel: Travel
    malformed: MalformedEventError | None = None
    kept: Any = None
    """A copy of an object that the caller gave; None: the caller gave bytes."""

    def again(self) -> Any:
        """Give the event for a later attempt: the handler may have changed what it had before."""
        if self.kept is None:
            return decode(self.body)
        if isinstance(self.kept, bytes):
            return marshal.loads(self.kept)  # noqa: S302 (written by this process)
        return _copied(self.kept)


def headers_of(travel: Travel) -> dict[str, str]:
    return {TRAVEL_HEADER: msgspec.json.encode(travel).decode()}


def take_in(
    event: Any,
    *,
    service: str,
    key: str | None,
    travel: Travel | Headers | None,
    chance: Chance,
) -> Intake:
    """Read what was given. What cannot be read is taken in too, and says why."""
    body, given, malformed = _read(event)
    so_far: Travel | None = None
    try:
        so_far = _travel(travel)
    except MalformedEventError as error:
        # To begin anew would forget the attempts, and an event could go round for ever.
        malformed = malformed or error
    event_id = _field(given, "event_id")
    so_far = so_far or Travel(operation=short_name(event_id or key or chance.token()))
    return Intake(
        given=given,
        body=body,
        event_type=_field(given, "event_type"),
        key=key or idempotency_key(service, [event_id or so_far.operation]),
        travel=so_far,
        malformed=malformed,
        kept=_kept(event, given),
    )


def _read(event: Any) -> tuple[bytes, Any, MalformedEventError | None]:
    if isinstance(event, str):
        event = event.encode(errors="surrogatepass")
    if isinstance(event, bytes | bytearray | memoryview):
        body = bytes(event)
        try:
            return body, decode(body), None
        except MalformedEventError as error:
            return body, None, error
    if isinstance(event, Mapping) and not isinstance(event, dict):
        event = dict(event)
    # Written down now, because the handler may change what it is given.
    body = _written(event)
    if isinstance(event, dict | Event):
        return body, event, None
    kind = type(event).__name__
    return body, None, MalformedEventError(f"an event is a JSON object, and this is a {kind}")


def _kept(event: Any, given: Any) -> Any:
    """Keep a copy of an object that the caller gave; bytes can be decoded again.

    JSON would not do: a date would come back as text. `marshal` is as fast, and refuses what it
    cannot give back exactly.
    """
    if given is None or isinstance(event, str | bytes | bytearray | memoryview):
        return None
    try:
        return marshal.dumps(given)
    except ValueError:
        return _copied(given)


def _copied(given: Any) -> Any:
    try:
        return copy.deepcopy(given)
    except Exception:  # noqa: BLE001 (a live object inside, which raises anything)
        return copy.copy(given)


def _written(event: Any) -> bytes:
    try:
        return msgspec.json.encode(event, enc_hook=str)
    except Exception:  # noqa: BLE001 (half of a surrogate pair, a ring: whatever can be kept)
        try:
            return json.dumps(event, default=str).encode()
        except Exception:  # noqa: BLE001
            return repr(event).encode(errors="backslashreplace")


def _travel(given: Travel | Headers | None) -> Travel | None:
    travel = given if isinstance(given, Travel) else _from_header(given or {})
    if travel is None:
        return None
    wrong = invalid_field(travel)
    if wrong is None and not travel.operation:
        wrong = ("operation", "is empty")
    if wrong is not None:
        raise MalformedEventError(f"the header {TRAVEL_HEADER} is invalid: {' '.join(wrong)}")
    return msgspec.structs.replace(travel, operation=short_name(travel.operation))


def _from_header(headers: Headers) -> Travel | None:
    header = headers.get(TRAVEL_HEADER)
    if header is None:
        return None
    try:
        if len(header) > LARGEST_HEADER:
            raise MalformedEventError(
                f"the header {TRAVEL_HEADER} is larger than {LARGEST_HEADER} bytes"
            )
        return msgspec.json.decode(header, type=Travel)
    except (msgspec.MsgspecError, UnicodeError, TypeError, RecursionError) as error:
        raise MalformedEventError(f"the header {TRAVEL_HEADER} cannot be read: {error}") from None


def _field(given: Any, name: str) -> str:
    value = given.get(name) if isinstance(given, dict) else getattr(given, name, None)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
