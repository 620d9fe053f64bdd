"""A letter: the case file of an event that ended without success, kept until somebody decides."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec

from headway.core.action import Reason
from headway.core.event import is_first_run
from headway.core.secrets import HIDDEN, bytes_without_secrets, without_secrets
from headway.core.travel import AttemptRecord, Travel, instant


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a person needs to decide. The original event is kept byte for byte."""

    letter_id: str
    original_event: Any
    """The event as JSON; None where the bytes are no JSON."""
    original_base64: str | None
    """The bytes, where they are no JSON or would not come out the same."""
    idempotency_key: str
    attempt_count: int
    """Retries after the first call, as operators count them; `attempts` has them all."""
    last_error: str
    error_type: str
    abandoned_reason: str
    service_name: str
    timestamp: str
    operation: str
    queue: str
    """Where the event was taken from, and where it goes when it is requeued."""
    event_type: str = ""
    generation: str = "0"
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    attempts: tuple[AttemptRecord, ...] = ()
    """Of very many or very long ones, those that still fit."""
    requeues: int = 0
    done_key: str = ""
    """Under which this end is recorded: work that was done since under the same key comes after."""
    collection: str = ""
    document_ids: tuple[str, ...] = ()
    """The documents that the event is about, and their collection, where its handler names them."""
    version: str = ""
    """The version of the service that gave the event up."""

    @property
    def body(self) -> bytes:
        """Give the original event as it came in."""
        if self.original_base64 is not None:
            return b64decode(self.original_base64)
        return msgspec.json.encode(self.original_event)


_ID_LENGTH = 24


def letter_id(queue: str, operation: str, generation: str) -> str:
    """Name a letter by what it is about, so that writing it twice makes one."""
    return sha256(
        f"{len(queue)}:{queue}{len(operation)}:{operation}{generation}".encode()
    ).hexdigest()[:_ID_LENGTH]


def requeued_letter(generation: str) -> str | None:
    """Name the letter that was sent again under a generation; None: it comes from no letter.

    >>> requeued_letter("0123456789abcdef01234567.2")
    '0123456789abcdef01234567'
    """
    if len(generation) <= _ID_LENGTH or is_first_run(generation):
        return None
    return generation[:_ID_LENGTH]


def screened(letter: Letter) -> Letter:
    """Give a dead letter as screens show it: with secrets hidden, in its event too."""
    plain = without_secrets(msgspec.to_builtins(letter))
    if letter.original_base64 is not None:
        try:
            body = letter.body
        except ValueError:
            plain["original_base64"] = HIDDEN  # no base64, so it may be anything
        else:
            safe = bytes_without_secrets(body)
            if safe != body:
                plain["original_base64"] = b64encode(safe).decode()
    return msgspec.convert(plain, Letter)


def write_letter(
    body: bytes,
    *,
    queue: str,
    travel: Travel,
    idempotency_key: str,
    service: str,
    event_type: str,
    reason: Reason,
    last_error: str,
    error_type: str,
    now: datetime,
    headers: Mapping[str, str] | None = None,
    done_key: str = "",
    collection: str = "",
    document_ids: Sequence[str] = (),
    version: str = "",
) -> Letter:
    original, in_base64 = kept(body)
    return Letter(
        letter_id=letter_id(queue, travel.operation, travel.generation),
        original_event=original,
        original_base64=in_base64,
        idempotency_key=idempotency_key,
        attempt_count=max(travel.failures - 1, 0),
        last_error=last_error,
        error_type=error_type,
        abandoned_reason=str(reason),
        service_name=service,
        timestamp=instant(now),
        operation=travel.operation,
        queue=queue,
        event_type=event_type,
        generation=travel.generation,
        headers=dict(headers or {}),
        attempts=travel.history,
        requeues=travel.requeues,
        done_key=done_key,
        collection=collection,
        document_ids=tuple(document_ids),
        version=version,
    )


def kept(body: bytes) -> tuple[Any, str | None]:
    """Keep bytes as JSON if that gives them back exactly, else beside it in base64."""
    try:
        original = msgspec.json.decode(body)
        exact = msgspec.json.encode(original) == body
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply
        return None, b64encode(body).decode()
    return original, None if exact else b64encode(body).decode()
