"""Put events into the bus from outside of any handler."""

from collections.abc import Sequence
from typing import Any

from headway.core.data_type import event_of
from headway.core.errors import ConfigurationError
from headway.core.event import FIRST_GENERATION, Event, new_event_id, publishable, short_name
from headway.core.routing import checked_name
from headway.core.travel import Travel, instant
from headway.ports.bus import Bus, Message, unrouted_types
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.runtime.unrouted import UnroutedNotice


class Publisher:
    """Publishes; what it returned for is stored.

    Args:
        bus: Where to.
        clock: For the time of an event, and its id.
        chance: For its id.
        notice: Is told of types that no service takes. None: the caller says so itself.
    """

    def __init__(
        self, bus: Bus, clock: Clock, chance: Chance, *, notice: UnroutedNotice | None = None
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._chance = chance
        self._notice = notice

    async def publish(
        self,
        event_type: Any,
        data: Any = None,
        *,
        event_id: str | None = None,
        version: str = "1.0",
    ) -> int:
        """Publish one event; say how many queues took it.

        0: no service takes this type yet, and the event is kept as unrouted until one does.
        """
        return await self._publish([self._message(event_type, data, event_id, version)])

    async def publish_all(
        self, events: Sequence[tuple[str, Any]], *, event_ids: Sequence[str] | None = None
    ) -> int:
        """Publish many events, each a type and its data; say how many times a queue took one."""
        if event_ids is not None and len(event_ids) != len(events):
            raise ConfigurationError(
                f"Invalid event_ids: {len(event_ids)} ids for {len(events)} events. Give one for "
                "each event, in the same order."
            )
        if event_ids is not None and len(set(event_ids)) < len(event_ids):
            twice = next(each for each in event_ids if event_ids.count(each) > 1)
            raise ConfigurationError(
                f"Invalid event_ids: {twice!r:.80} is there twice, and only the first of these "
                "events would be stored. Give each event its own id."
            )
        names: Sequence[str | None] = [None] * len(events) if event_ids is None else event_ids
        return await self._publish(
            [
                self._message(event_type, data, name)
                for (event_type, data), name in zip(events, names, strict=True)
            ]
        )

    async def _publish(self, messages: Sequence[Message]) -> int:
        taken_by = await self._bus.publish(messages)
        if self._notice is not None:
            await self._notice.tell_of(self._notice.due(unrouted_types(messages, taken_by)))
        return sum(taken_by)

    def _message(
        self, event_type: Any, data: Any, event_id: str | None = None, version: str = "1.0"
    ) -> Message:
        if type(event_type) is not str:
            event_type, data = event_of(event_type, data)
        checked_name("event_type", event_type)
        given: object = event_id
        if given is not None and (not isinstance(given, str) or not given):
            raise ConfigurationError(
                f"Invalid event_id={given!r:.80}: use a text that names the event, or leave it "
                "out. Is a variable unset?"
            )
        now = self._clock.now()
        named = event_id or new_event_id(now, self._chance.token())
        event = Event(event_type, named, instant(now), version, {} if data is None else data)
        return message_of(publishable(event), event_type, named)

    async def publish_bytes(
        self, body: bytes, event_type: str, *, operation: str | None = None
    ) -> int:
        """Publish bytes as they are."""
        named = operation or new_event_id(self._clock.now(), self._chance.token())
        return await self._publish([message_of(body, event_type, named)])


def message_of(body: bytes, event_type: str, operation: str) -> Message:
    return Message(
        body=body,
        travel=Travel(operation=short_name(operation), generation=FIRST_GENERATION),
        event_type=event_type,
    )
