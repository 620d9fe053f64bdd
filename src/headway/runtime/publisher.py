"""Put events into the bus from outside of any handler."""

from collections.abc import Sequence
from typing import Any

from headway.core.errors import ConfigurationError
from headway.core.event import FIRST_GENERATION, Event, new_event_id, publishable, short_name
from headway.core.routing import checked_name
from headway.core.travel import Travel, instant
from headway.ports.bus import Bus, Message
from headway.ports.chance import Chance
from headway.ports.clock import Clock


class Publisher:
    """Publishes; what it returned for is stored."""

    def __init__(self, bus: Bus, clock: Clock, chance: Chance) -> None:
        self._bus = bus
        self._clock = clock
        self._chance = chance

    async def publish(
        self,
        event_type: str,
        data: Any = None,
        *,
        event_id: str | None = None,
        version: str = "1.0",
    ) -> int:
        """Publish one event; say how many queues took it. 0: no service takes this type."""
        (count,) = await self._bus.publish([self._message(event_type, data, event_id, version)])
        return count

    async def publish_all(
        self, events: Sequence[tuple[str, Any]], *, event_ids: Sequence[str] | None = None
    ) -> int:
        """Publish many events, each a type and its data."""
        if event_ids is not None and len(event_ids) != len(events):
            raise ConfigurationError(
                f"Invalid event_ids: {len(event_ids)} ids for {len(events)} events. Give one for "
                "each event, in the same order."
            )
        names: Sequence[str | None] = [None] * len(events) if event_ids is None else event_ids
        return sum(
            await self._bus.publish(
                [
                    self._message(event_type, data, name)
                    for (event_type, data), name in zip(events, names, strict=True)
                ]
            )
        )

    def _message(
        self, event_type: str, data: Any, event_id: str | None = None, version: str = "1.0"
    ) -> Message:
        checked_name("event_type", event_type)
        now = self._clock.now()
        named = event_id or new_event_id(now, self._chance.token())
        event = Event(event_type, named, instant(now), version, {} if data is None else data)
        return message_of(publishable(event, any_data=True), event_type, named)

    async def publish_bytes(
        self, body: bytes, event_type: str, *, operation: str | None = None
    ) -> int:
        """Publish bytes as they are."""
        named = operation or new_event_id(self._clock.now(), self._chance.token())
        return sum(await self._bus.publish([message_of(body, event_type, named)]))


def message_of(body: bytes, event_type: str, operation: str) -> Message:
    return Message(
        body=body,
        travel=Travel(operation=short_name(operation), generation=FIRST_GENERATION),
        event_type=event_type,
    )
