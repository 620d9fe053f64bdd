"""Letters as messages, and back.

A letter is one JSON text, and the event is part of it. A large event is kept apart: it is the body
of the message, byte for byte, and the case file is a header. So the letter is never larger than its
event was, and the broker has taken that one before.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pika

from headway.adapters.rabbitmq.outgoing import DIRECT, Outgoing, short
from headway.core.letter import Letter, kept

LETTER = "headway.letter"
APART = "headway.letter.apart"
"""The types of the messages."""
_CASE_FILE = "headway-letter"
_LARGE = 262_144
"""Bytes from which on an event is kept apart."""
LONGEST_CASE_FILE = 60_000
SHORTEST_CASE_FILE = 2_500
"""Bytes of a case file that is a header. Every broker takes the second."""
_PERSISTENT = 2
_FEW = 100
UNDATED = datetime(1970, 1, 1, tzinfo=UTC)
_LETTER = msgspec.json.Decoder(Letter)


def stored(queue: str, letter: Letter) -> Outgoing:
    """Make the message that a letter is kept as."""
    body = msgspec.json.encode(letter)
    if len(body) >= _LARGE:
        return apart(queue, letter)
    return Outgoing(DIRECT, queue, body, _properties(letter, LETTER))


def apart(queue: str, letter: Letter, limit: int = LONGEST_CASE_FILE) -> Outgoing:
    """Make the message with the event as its body. Of a long case file goes what can be spared."""
    properties = _properties(letter, APART)
    properties.content_type = None
    texts = (msgspec.json.encode(each).decode() for each in _shorter(letter))
    shortest = ""
    for shortest in texts:
        if len(shortest.encode()) <= limit:
            break
    properties.headers = {_CASE_FILE: shortest}
    return Outgoing(DIRECT, queue, letter.body, properties)


def read(properties: pika.BasicProperties, body: bytes, *, is_dead: bool) -> Letter | None:
    """Give the letter that a message is; None: it is none."""
    case_file = (properties.headers or {}).get(_CASE_FILE)
    try:
        if properties.type == APART and isinstance(case_file, str):
            original, in_base64 = kept(body)
            letter = msgspec.structs.replace(
                _LETTER.decode(case_file), original_event=original, original_base64=in_base64
            )
        elif properties.type == LETTER or (properties.type is None and not is_dead):
            letter = _LETTER.decode(body)
        else:
            return None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return letter if letter.letter_id else None


def written_at(letter: Letter) -> datetime:
    """Say when a letter was written; of one that somebody made by hand nobody may know."""
    try:
        at = datetime.fromisoformat(letter.timestamp)
    except ValueError:
        return UNDATED
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _properties(letter: Letter, kind: str) -> pika.BasicProperties:
    return pika.BasicProperties(
        content_type="application/json",
        delivery_mode=_PERSISTENT,
        type=kind,
        message_id=short(letter.letter_id),
        timestamp=_seconds(letter),
    )


def _seconds(letter: Letter) -> int:
    return max(int(written_at(letter).timestamp()), 0)


def _shorter(letter: Letter) -> Iterator[Letter]:
    """Give the case file without its event: whole, and then with less and less of it."""
    spare = msgspec.structs.replace(letter, original_event=None, original_base64=None)
    yield spare
    steps: tuple[dict[str, Any], ...] = (
        {"attempts": ()},
        {"headers": {}},
        {"document_ids": (), "collection": ""},
        {
            "done_key": "",
            "idempotency_key": letter.idempotency_key[:_FEW],
            "event_type": letter.event_type[:_FEW],
            "last_error": letter.last_error[:_FEW],
            "error_type": letter.error_type[:_FEW],
        },
    )
    for less in steps:
        spare = msgspec.structs.replace(spare, **less)
        yield spare
