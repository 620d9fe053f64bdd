"""What lies in a failed queue, as letters: our own, and whatever else somebody put there."""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
import pika

from headway.adapters.rabbitmq import headers, writing
from headway.adapters.rabbitmq.outgoing import DIRECT, Outgoing, short
from headway.adapters.rabbitmq.topology import work_queue_of
from headway.adapters.rabbitmq.writing import UNDATED
from headway.core.action import Reason
from headway.core.errors import CrashLoopError, MalformedEventError
from headway.core.event import open_envelope
from headway.core.letter import Letter, write_letter
from headway.core.travel import Travel

RENEWED = "headway-renewed"
"""How often a message was published anew, because it had been given back so often."""
_DIED_IN = "headway-died-in"
_DIED_OF = "headway-died-of"
_DIED_AT = "headway-died-at"
"""What the broker said of a death, for the copies of such a message."""
_COUNT = "x-delivery-count"
_DEATHS = "x-death"
_LIMIT = "delivery_limit"
_PERSISTENT = 2
_ID_LENGTH = 24
_LONGEST_HEADER = 1_000
_NOT_COPIED = frozenset({_COUNT, "CC", "BCC"})
"""A copy has to go to its one queue, and its deliveries are counted anew."""

Headers = Mapping[str, Any]


class Shown(NamedTuple):
    """A message of a failed queue, made into a letter."""

    letter: Letter
    is_letter: bool
    """It was written as one. Its id alone says what it is a copy of."""
    is_named: bool
    """Somebody gave it a name. Without one, two that are alike may still be two."""
    digest: bytes
    """Of the original event: another message of the same name is a copy if this is the same."""
    renewed: int


class _Death(NamedTuple):
    queue: str
    reason: str
    at: datetime


def renewed(queue: str, properties: pika.BasicProperties, body: bytes) -> Outgoing:
    """Make the copy that takes the place of a message, as if nobody had ever looked at it."""
    held: Headers = properties.headers or {}
    kept = {name: value for name, value in held.items() if name not in _NOT_COPIED}
    if (death := _death(held)) is not None:
        # The broker's own list would make it believe that the copy goes round in circles.
        kept |= {_DIED_IN: death.queue, _DIED_OF: death.reason, _DIED_AT: death.at.isoformat()}
    kept = {name: value for name, value in kept.items() if not name.startswith("x-")}
    kept[RENEWED] = renewals(held) + 1
    copy = pika.BasicProperties(
        content_type=short(properties.content_type),
        content_encoding=short(properties.content_encoding),
        headers={name: value for name, value in kept.items() if _can_be_sent(name, value)},
        delivery_mode=_PERSISTENT,
        priority=properties.priority,
        correlation_id=short(properties.correlation_id),
        reply_to=short(properties.reply_to),
        # No expiration: it stays until somebody decides.
        message_id=short(properties.message_id),
        timestamp=properties.timestamp,
        type=short(properties.type),
        # No user_id: the broker refuses everybody's but our own.
        app_id=short(properties.app_id),
    )
    return Outgoing(DIRECT, queue, body, copy)


def deliveries(properties: pika.BasicProperties) -> int:
    """Say how often a message has been given back; 0: nobody has looked at it yet."""
    count = (properties.headers or {}).get(_COUNT, 0)
    return count if isinstance(count, int) else 0


def renewals(held: Headers) -> int:
    count = held.get(RENEWED, 0)
    return count if isinstance(count, int) and count > 0 else 0


def show(failed: str, properties: pika.BasicProperties, body: bytes) -> Shown:
    """Make whatever it is into a letter; nothing is too odd to be shown."""
    held: Headers = properties.headers or {}
    death = _death(held)
    letter = writing.read(properties, body, is_dead=death is not None)
    if letter is not None:
        return Shown(letter, True, True, _digest(letter), renewals(held))  # noqa: FBT003
    letter, is_named = _unwritten(failed, properties, body, death)
    return Shown(letter, False, is_named, _digest(letter), renewals(held))  # noqa: FBT003


def numbered(letter: Letter, number: int) -> Letter:
    """Name a letter that is like another, and still not the same."""
    name = sha256(f"{letter.letter_id}:{number}".encode()).hexdigest()[:_ID_LENGTH]
    return msgspec.structs.replace(letter, letter_id=name)


def _unwritten(
    failed: str, properties: pika.BasicProperties, body: bytes, death: _Death | None
) -> tuple[Letter, bool]:
    """Write the letter for what nobody wrote one for; it has to be the same each time."""
    travel, event_type = travel_of(properties, body)
    limit = death is not None and death.reason == _LIMIT
    letter = write_letter(
        body,
        queue="" if death is None else work_queue_of(death.queue),
        travel=travel,
        idempotency_key=travel.operation,
        service=failed.removesuffix(".failed"),
        event_type=event_type,
        reason=Reason.CRASH_LOOP if limit else Reason.MALFORMED,
        last_error=_why(failed, death),
        error_type=(CrashLoopError if limit else MalformedEventError).__name__,
        now=UNDATED if death is None and properties.timestamp is None else _at(properties, death),
        headers=_own_headers(properties.headers or {}),
    )
    if travel.operation and death is not None:
        return letter, True
    # Other people's message ids need not be unique.
    name = f"{failed}\n{properties.message_id or ''}\n".encode() + body
    named = msgspec.structs.replace(letter, letter_id=sha256(name).hexdigest()[:_ID_LENGTH])
    return named, bool(properties.message_id)


def travel_of(properties: pika.BasicProperties, body: bytes) -> tuple[Travel, str]:
    """Read what travels beside a message, and its event type; give what can be read."""
    try:
        travel = headers.read(properties.headers, properties.message_id)
    except MalformedEventError:
        travel = Travel(operation=properties.message_id or "")
    try:
        envelope = open_envelope(body)
    except MalformedEventError:
        return travel, properties.type or ""
    if not travel.operation and envelope.event_id:
        travel = msgspec.structs.replace(travel, operation=envelope.event_id)
    return travel, envelope.event_type


def _why(failed: str, death: _Death | None) -> str:
    if death is None:
        return f"this is no letter: somebody published it straight into {failed}"
    if death.reason == _LIMIT:
        return (
            f"the broker gave it out again and again, and then took it out of {death.queue}: its "
            "workers died, or handed it back without an end"
        )
    return f"the broker took it out of {death.queue} ({death.reason}); no worker wrote a letter"


def _death(held: Headers) -> _Death | None:
    """Find where a message died; the broker's list has the latest death first."""
    if isinstance(held.get(_DIED_IN), str):
        return _Death(held[_DIED_IN], str(held.get(_DIED_OF, "")), instant_of(held.get(_DIED_AT)))
    deaths = held.get(_DEATHS)
    if not isinstance(deaths, list):
        return None
    told = [
        each for each in deaths if isinstance(each, dict) and isinstance(each.get("queue"), str)
    ]
    # Every delay ends in a death of its own.
    told.sort(key=lambda each: each.get("reason") != _LIMIT)
    for each in told[:1]:
        return _Death(each["queue"], str(each.get("reason", "")), instant_of(each.get("time")))
    return None


def _at(properties: pika.BasicProperties, death: _Death | None) -> datetime:
    if death is not None:
        return death.at
    try:
        return datetime.fromtimestamp(properties.timestamp, UTC)
    except (OverflowError, OSError, ValueError, TypeError):
        return UNDATED


def instant_of(value: object) -> datetime:
    """Read a time that stands in a header; the beginning of 1970: there is none."""
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        return UNDATED
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _own_headers(held: Headers) -> dict[str, str]:
    """Give what the publisher wrote beside it."""
    return {
        name: str(value)[:_LONGEST_HEADER]
        for name, value in held.items()
        if name not in _NOT_COPIED and not name.startswith(("x-", "headway-"))
    }


def _can_be_sent(name: str, value: object) -> bool:
    try:
        pika.data.encode_table([], {name: value})
    except Exception:  # noqa: BLE001 (whatever pika cannot write must not keep the bytes back)
        return False
    return True


def _digest(letter: Letter) -> bytes:
    kept = letter.original_base64
    body = msgspec.json.encode(letter.original_event) if kept is None else kept.encode()
    return sha256(body).digest()[:12]
