"""What a worker process tells whoever started it: one line of JSON for each fact."""

import logging
from typing import Literal, TextIO

import msgspec

from headway.facts import (
    DeadLettered,
    DuplicatesRecognised,
    EventParked,
    EventRecovered,
    EventRetryScheduled,
    Fact,
    HealthChanged,
    Processed,
)

What = Literal[
    "processed", "recognised", "retry", "recovered", "parked", "down", "back", "letter", "trouble"
]
"""Trouble is what keeps a whole worker waiting: its engine is away, or has no room left."""
_LONGEST = 500


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fact, as far as progress can be seen from it."""

    what: What
    service: str
    event_type: str
    count: int = 1
    key: str = ""
    """Of the work: an event that is tried again keeps it."""
    verdict: str = ""
    words: str = ""
    """Of the error."""
    seconds: float = 0.0


_LINE = msgspec.json.Decoder(Told)


def read(line: bytes) -> Told | None:
    """Read what was told; None: a library wrote something else there."""
    try:
        return _LINE.decode(line)
    except msgspec.MsgspecError:
        return None


class Teller:
    """Hears facts, and writes those down that others ask for."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def tell(self, fact: Fact) -> None:
        told = as_told(fact)
        if told is not None:
            self.write(told)

    def write(self, told: Told) -> None:
        self._to.write(msgspec.json.encode(told).decode() + "\n")
        self._to.flush()


class TroubleTeller(logging.Handler):
    """Tells of errors that no fact tells of, from the lines that the log has of them."""

    def __init__(self, teller: Teller) -> None:
        super().__init__(logging.ERROR)
        self._teller = teller

    def emit(self, record: logging.LogRecord) -> None:
        # A line about an event is made from a fact; the log of reports has its own name.
        if record.name == "headway" and not hasattr(record, "event_type"):
            words = record.getMessage()[:_LONGEST]
            self._teller.write(Told(what="trouble", service="", event_type="", words=words))


def as_told(fact: Fact) -> Told | None:  # noqa: PLR0911 (one for each fact)
    """Give what is told of a fact; None: nothing."""
    match fact:
        case Processed(service=service, event_type=kind, seconds=seconds):
            return Told(what="processed", service=service, event_type=kind, count=len(seconds))
        case DuplicatesRecognised(service=service, event_type=kind, count=count):
            return Told(what="recognised", service=service, event_type=kind, count=count)
        case EventRetryScheduled():
            return Told(
                what="retry",
                service=fact.service,
                event_type=fact.event_type,
                key=fact.idempotency_key,
                verdict=fact.failure.diagnosis.verdict.value,
                words=str(fact.failure.error)[:_LONGEST],
            )
        case EventRecovered():
            return Told(
                what="recovered",
                service=fact.service,
                event_type=fact.event_type,
                key=fact.idempotency_key,
                count=fact.retries,
                seconds=fact.elapsed.total_seconds(),
            )
        case EventParked(service=service, event_type=kind, idempotency_key=key):
            return Told(what="parked", service=service, event_type=kind, key=key)
        case HealthChanged():
            return Told(
                what="down" if fact.down else "back",
                service=fact.service,
                event_type=fact.event_type,
                words=fact.last_error[:_LONGEST],
                seconds=fact.lasted.total_seconds(),
            )
        case DeadLettered():
            return Told(
                what="letter",
                service=fact.service,
                event_type=fact.event_type,
                key=fact.idempotency_key,
                words=fact.last_error[:_LONGEST],
            )
        case _:
            return None
