"""Events that no queue takes: messages of the durable queue `headway.unrouted`.

Headway publishes with the mandatory flag. The broker returns what it cannot route, and the
publisher stores it here before its publish returns. A walk through the queue is a look as through a
failed queue: one at a time, and what is not moved goes back in its order.
"""

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from datetime import datetime, timedelta
from functools import partial

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from headway.adapters.rabbitmq import headers
from headway.adapters.rabbitmq.catalogue import Catalogue
from headway.adapters.rabbitmq.contents import RENEWED, instant_of, renewed, travel_of
from headway.adapters.rabbitmq.declaring import declare_exchange, declare_queue, has_default_limit
from headway.adapters.rabbitmq.desk import Desk
from headway.adapters.rabbitmq.looking import Found, Look
from headway.adapters.rabbitmq.looks import Looks, Send, ready
from headway.adapters.rabbitmq.outgoing import DIRECT, Outgoing
from headway.adapters.rabbitmq.scanning import QueueHeldError, Taken
from headway.adapters.rabbitmq.session import Session
from headway.adapters.rabbitmq.topology import UNROUTED, unrouted_queue
from headway.core.errors import ConfigurationError, NotPublishedError, UnsendableError
from headway.core.routing import routing_key
from headway.core.travel import instant
from headway.ports.clock import Clock
from headway.ports.unrouted import MALFORMED, OnStep, UnroutedEvent

_LOG = logging.getLogger("headway")
_AT_ONCE = 500
_SHORT = timedelta(seconds=0.5)
_RESTS_FOR = 200
"""Times as long as a walk took that was not short."""
_OF_KEEPING = frozenset({headers.EVENT_TYPE, headers.UNROUTED_SINCE, RENEWED})

Chosen = Callable[[UnroutedEvent], bool]


class RabbitUnrouted:
    """The queue `headway.unrouted` of a broker.

    Args:
        parameters: Of the connection over which events are held while they are read.
        desk: Declares the queue, and counts.
        catalogue: Names the event types that queues take.
        clock: For the time at which an event was published.
        send: Publishes messages as they are, confirmed, and says whether a queue took each.
        exchange: Through which events find their queues.
        for_worker: This process routes its own types all the time, beside other work.
    """

    def __init__(
        self,
        parameters: pika.ConnectionParameters,
        desk: Desk,
        catalogue: Catalogue,
        clock: Clock,
        *,
        send: Send,
        exchange: str,
        for_worker: bool,
    ) -> None:
        self._looks = Looks(Session(parameters), clock, send)
        self._desk = desk
        self._catalogue = catalogue
        self._clock = clock
        self._send = send
        self._exchange = exchange
        self._for_worker = for_worker
        self._rests_until: datetime | None = None
        """A worker's own rounds read a long queue again only after this time."""

    @property
    def held(self) -> int:
        """How many events this process has in hand while it reads; no count has them."""
        return 0 if self._looks.now is None else self._looks.now.scan.held

    # Keeping

    async def keep(self, events: Sequence[tuple[str, Outgoing]]) -> None:
        """Store events that the broker returned, each with its type; returns when it confirmed."""
        now = self._clock.now()
        left = await self._unstored([_kept(event_type, sent, now) for event_type, sent in events])
        if not left:
            return
        await self.declare()  # no worker has done so
        if await self._unstored(left):
            raise NotPublishedError(
                f"RabbitMQ did not store an event that no service takes: {UNROUTED} was deleted "
                "meanwhile. Publish it again"
            )

    async def declare(self) -> None:
        """Declare the exchange and the queue, for a publisher without queues of its own."""
        try:
            await self._desk.run(self._declare)
        except (ConnectionError, AMQPError) as error:
            raise NotPublishedError(f"RabbitMQ could not declare {UNROUTED}: {error}") from error

    def _declare(self, channel: BlockingChannel) -> None:
        declare_exchange(channel, self._exchange, "topic")
        declare_queue(channel, unrouted_queue(has_default_limit=has_default_limit(channel)))

    async def _unstored(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        routed = await self._send(messages)
        return [each for each, is_routed in zip(messages, routed, strict=True) if not is_routed]

    # Reading

    async def count(self) -> int:
        """Count what waits and is in no reader's hand; costs the same however much there is."""
        return await self._desk.run(lambda channel: ready(channel.connection, UNROUTED))

    async def counts(self) -> Mapping[str, int]:
        async with self._looks.turn:
            return await self._looks.surely(self._counts)

    async def _counts(self) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        async with aclosing(self._pages()) as pages:
            async for _, page in pages:
                counts.update(_event(each.taken).event_type for each in page)
        return counts

    async def oldest(self) -> Mapping[str, datetime]:
        async with self._looks.turn:
            return await self._looks.surely(self._oldest)

    async def _oldest(self) -> Mapping[str, datetime]:
        found: dict[str, datetime] = {}
        async with aclosing(self._pages()) as pages:
            async for _, page in pages:
                for event in [_event(each.taken) for each in page]:
                    found.setdefault(event.event_type, event.at)
        return found

    async def taken_types(self) -> Sequence[str]:
        entries = (await self._catalogue.read()).values()
        return sorted({each for entry in entries for each in entry.event_types})

    async def takers(self, event_type: str) -> Sequence[str]:
        entries = (await self._catalogue.read()).items()
        return sorted(name for name, entry in entries if event_type in entry.event_types)

    async def read(
        self,
        limit: int,
        *,
        event_types: Sequence[str] | None = None,
        operations: Sequence[str] | None = None,
    ) -> Sequence[UnroutedEvent]:
        if limit <= 0:
            return []
        async with self._looks.turn:
            reading = partial(self._read, limit, _chosen(event_types, operations))
            return await self._looks.surely(reading)

    async def _read(self, limit: int, chosen: Chosen) -> Sequence[UnroutedEvent]:
        found: list[UnroutedEvent] = []
        async with aclosing(self._pages()) as pages:
            async for _, page in pages:
                found += filter(chosen, [_event(each.taken) for each in page])
                if len(found) >= limit:
                    break
        return found[:limit]

    async def _pages(self) -> AsyncGenerator[tuple[Look, list[Found]]]:
        """Walk through the queue as it is now; the caller has its turn."""
        look = await self._looks.start(UNROUTED)
        try:
            while look is not None and (page := await self._looks.more(look, _AT_ONCE)):
                yield look, page
        finally:
            await self._looks.end()

    # Changing

    async def route(
        self, event_types: Sequence[str] | None = None, *, on_step: OnStep | None = None
    ) -> int:
        """Move events through the exchange: copy, confirm, remove."""
        if self._for_worker and event_types is not None:
            return await self.route_own(event_types, on_step)
        return await self._route(event_types, on_step)

    async def route_own(self, event_types: Sequence[str], on_step: OnStep | None = None) -> int:
        """As `route`, for a worker that does so again and again.

        To find the events of some types takes a walk through those of all types. A worker leaves it
        to its next round while another process reads the queue, and rests after a walk that took
        long and found nothing.
        """
        begun = self._clock.now()
        if self._rests_until is not None and begun < self._rests_until:
            return 0
        try:
            moved = await self.route_at_start(event_types, on_step)
        except QueueHeldError:
            return 0
        took = self._clock.now() - begun
        is_costly = not moved and took > _SHORT
        self._rests_until = begun + _RESTS_FOR * took if is_costly else None
        return moved

    async def route_at_start(
        self, event_types: Sequence[str], on_step: OnStep | None = None
    ) -> int:
        """As `route`, for a worker: it starts also where the broker does not let it read."""
        try:
            return await self._route(event_types, on_step)
        except ConfigurationError as error:
            _LOG.error("Could not route events that waited for this service: %s", error)
            return 0

    async def _route(self, event_types: Sequence[str] | None, on_step: OnStep | None) -> int:
        if not await self.count():
            return 0
        chosen = _chosen(event_types, None)
        return await self._remove_all(
            lambda event: event.event_type != MALFORMED and chosen(event), on_step, routed_only=True
        )

    async def _routed(self, found: Sequence[Found]) -> list[Found]:
        """Publish events through the exchange; give those that a queue took."""
        try:
            routed = await self._send([_again(each.taken, self._exchange) for each in found])
        except UnsendableError:
            if len(found) == 1:
                return []
            return [taken for each in found for taken in await self._routed([each])]
        return [each for each, is_routed in zip(found, routed, strict=True) if is_routed]

    async def purge(
        self,
        event_types: Sequence[str] | None = None,
        *,
        operations: Sequence[str] | None = None,
        on_step: OnStep | None = None,
    ) -> int:
        if event_types is None and operations is None:
            return 0
        chosen = _chosen(event_types, operations)
        return await self._remove_all(chosen, on_step, routed_only=False)

    async def _remove_all(
        self, chosen: Chosen, on_step: OnStep | None, *, routed_only: bool
    ) -> int:
        removed: Counter[str] = Counter()

        def count(gone: Mapping[str, int]) -> None:
            removed.update(gone)
            if on_step is not None:
                on_step(gone)

        async with self._looks.turn:
            await self._looks.surely(partial(self._remove, chosen, count, routed_only))
        return removed.total()

    async def _remove(self, chosen: Chosen, count: OnStep, routed_only: bool) -> None:  # noqa: FBT001
        async with aclosing(self._pages()) as pages:
            async for look, page in pages:
                found = [each for each in page if chosen(_event(each.taken))]
                if found and routed_only:
                    found = await self._routed(found)
                if found:
                    ids = [each.letter.letter_id for each in found]
                    await self._looks.settle(look, look.take_out(ids))
                count(Counter(_event_type(each.taken) for each in found))

    async def close(self) -> None:
        """Give back what is in hand, and close the connection."""
        await self._looks.close()


def _chosen(event_types: Collection[str] | None, operations: Collection[str] | None) -> Chosen:
    types = None if event_types is None else frozenset(event_types)
    named = None if operations is None else frozenset(operations)
    return lambda event: (
        (types is None or event.event_type in types)
        and (named is None or event.travel.operation in named)
    )


def _kept(event_type: str, sent: Outgoing, now: datetime) -> Outgoing:
    """Make the message as which an event waits."""
    properties = copy(sent.properties)
    properties.headers = {
        **(properties.headers or {}),
        headers.EVENT_TYPE: event_type,
        headers.UNROUTED_SINCE: instant(now),
    }
    return Outgoing(DIRECT, UNROUTED, sent.body, properties)


def _again(taken: Taken, exchange: str) -> Outgoing:
    """Make the message that the publisher sent."""
    properties = renewed(UNROUTED, taken.properties, taken.body).properties
    own = {name: value for name, value in properties.headers.items() if name not in _OF_KEEPING}
    properties.headers = own or None
    return Outgoing(exchange, routing_key(_event_type(taken)), taken.body, properties)


def _event(taken: Taken) -> UnroutedEvent:
    travel, _ = travel_of(taken.properties, taken.body)
    return UnroutedEvent(
        event_type=_event_type(taken),
        body=taken.body,
        travel=travel,
        at=instant_of((taken.properties.headers or {}).get(headers.UNROUTED_SINCE)),
    )


def _event_type(taken: Taken) -> str:
    """Name the type; another program's message has it inside, if at all."""
    named = (taken.properties.headers or {}).get(headers.EVENT_TYPE)
    if not isinstance(named, str):
        named = travel_of(taken.properties, taken.body)[1]
    return named or MALFORMED
