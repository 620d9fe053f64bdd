"""Bodies become events, get their names, and go in: one at a time, or many of them."""

import asyncio
import uuid

import msgspec

from headway.systems.ledger import answers
from headway.systems.ledger.answers import Answer
from headway.systems.ledger.decoding import (
    MalformedBodyError,
    RefusedEventError,
    decode_bulk,
    decode_event,
)
from headway.systems.ledger.intake import Intake
from headway.systems.ledger.metrics import LedgerMetrics

_AT_ONCE = 8
"""Events of one bulk that are stored side by side: a bulk must not take all connections."""
_NAMES = uuid.UUID("5f1d7c9e-0c0b-4c8e-9a53-2f6f1c1f7a10")


class Reception:
    """Every body gets an answer, whatever it holds."""

    def __init__(self, intake: Intake, metrics: LedgerMetrics) -> None:
        self._intake = intake
        self._metrics = metrics

    async def single(self, body: bytes, key: str | None) -> Answer:
        return await self._one(body, key, place=0, at="")

    async def bulk(self, body: bytes, key: str | None) -> Answer:
        """Store each event in a transaction of its own; one that is refused stops no other."""
        try:
            bodies = decode_bulk(body)
        except (MalformedBodyError, RefusedEventError) as error:
            return self._refused(error)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def in_turn(place: int, body: msgspec.Raw) -> Answer:
            async with turns:
                return await self._one(bytes(body), key, place=place, at=f"events[{place}]")

        return answers.together(
            await asyncio.gather(*(in_turn(place, body) for place, body in enumerate(bodies)))
        )

    async def _one(self, body: bytes, key: str | None, *, place: int, at: str) -> Answer:
        try:
            event = decode_event(body, at=at)
        except (MalformedBodyError, RefusedEventError) as error:
            return self._refused(error)
        if not event.event_id:
            event = msgspec.structs.replace(event, event_id=new_event_id(key, place))
        return await self._intake.accept(event, key)

    def _refused(self, error: MalformedBodyError | RefusedEventError) -> Answer:
        self._metrics.settled("unknown", "invalid")
        if isinstance(error, RefusedEventError):
            return answers.refused(str(error), field=error.field)
        return answers.malformed(str(error))


def new_event_id(key: str | None, place: int) -> str:
    """Name an event that came without an id, once, before the first attempt.

    With an Idempotency-Key the name follows from it and from the place in the bulk, so that the
    same request sent again, which has no id either, is still the same event.
    """
    return str(uuid.uuid5(_NAMES, f"{place}:{key}") if key else uuid.uuid4())
