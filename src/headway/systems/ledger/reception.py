"""Bodies become events, get their names, and go in: one at a time, or many of them."""

import asyncio
import uuid
from collections import defaultdict

import msgspec

from headway.systems.ledger import answers
from headway.systems.ledger.answers import Answer
from headway.systems.ledger.decoding import (
    MalformedBodyError,
    RefusedEventError,
    TooManyEventsError,
    decode_bulk,
    decode_event,
)
from headway.systems.ledger.events import Event
from headway.systems.ledger.intake import Intake
from headway.systems.ledger.metrics import LedgerMetrics
from headway.systems.ledger.settings import MAX_BULK_EVENTS

_AT_ONCE = 8
"""Events of one bulk that are stored side by side: a bulk must not take all connections."""
_BEGUN_AT_ONCE = 500
"""Events of one bulk that are decoded in one go: other requests are answered in between."""
_NAMES = uuid.UUID("5f1d7c9e-0c0b-4c8e-9a53-2f6f1c1f7a10")


class Reception:
    """Every body gets an answer, whatever it holds."""

    def __init__(self, intake: Intake, metrics: LedgerMetrics, *, max_bulk_events: int) -> None:
        self._intake = intake
        self._metrics = metrics
        self._max_bulk_events = max_bulk_events

    async def single(self, body: bytes, key: str | None) -> Answer:
        event = self._read(body, key, place=0, at="")
        return event if isinstance(event, Answer) else await self._intake.accept(event, key)

    async def bulk(self, body: bytes, key: str | None) -> Answer:
        """Store each event in a transaction of its own; one that is refused stops no other."""
        try:
            bodies = decode_bulk(body, limit=self._max_bulk_events)
        except TooManyEventsError:
            self._metrics.settled("unknown", "invalid")
            return answers.too_many(self._max_bulk_events, MAX_BULK_EVENTS)
        except (MalformedBodyError, RefusedEventError) as error:
            return self._refused(error)
        turns = asyncio.Semaphore(_AT_ONCE)
        # Side by side, events of one entity would only make one another begin again.
        entities: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

        async def in_turn(place: int, body: msgspec.Raw) -> Answer:
            event = self._read(bytes(body), key, place=place, at=f"events[{place}]")
            if isinstance(event, Answer):
                return event
            async with entities[event.entity_id], turns:
                return await self._intake.accept(event, key)

        found: list[Answer] = []
        for first in range(0, len(bodies), _BEGUN_AT_ONCE):
            some = enumerate(bodies[first : first + _BEGUN_AT_ONCE], first)
            found += await asyncio.gather(*(in_turn(place, body) for place, body in some))
        return answers.together(found)

    def _read(self, body: bytes, key: str | None, *, place: int, at: str) -> Event | Answer:
        try:
            event = decode_event(body, at=at)
        except (MalformedBodyError, RefusedEventError) as error:
            return self._refused(error)
        if event.event_id:
            return event
        return msgspec.structs.replace(event, event_id=new_event_id(key, place))

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
