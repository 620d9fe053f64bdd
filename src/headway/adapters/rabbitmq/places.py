"""Where everything is, as far as a broker can say.

What a worker has in hand is in no count, nobody else can see it; letters that somebody is reading
at this moment neither. What waits for its time lies in queues that all work queues share: it is
counted under one name for all.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from headway.adapters.rabbitmq.catalogue import Catalogue
from headway.adapters.rabbitmq.desk import NOT_FOUND, Desk, is_refused
from headway.adapters.rabbitmq.letters import RabbitLetters
from headway.adapters.rabbitmq.topology import STEPS, UNROUTED, delay_name, suspects_of
from headway.adapters.rabbitmq.unrouted import RabbitUnrouted
from headway.ports.places import Depths, QueueCount

DELAYED = "headway.delay"
"""Under which name all that is delayed is counted."""


class RabbitPlaces:
    """Counts what is ready, delayed and failed."""

    def __init__(
        self, desk: Desk, catalogue: Catalogue, letters: RabbitLetters, unrouted: RabbitUnrouted
    ) -> None:
        self._desk = desk
        self._catalogue = catalogue
        self._letters = letters
        self._unrouted = unrouted

    async def depths(self) -> Depths:
        found = await self._catalogue.read()
        names = [each for queue in sorted(found) for each in (queue, suspects_of(queue))]
        delays = [delay_name(step) for step in STEPS]
        depths = await self._desk.run(partial(_depths, queues=[*names, *delays, UNROUTED]))
        rows = [
            QueueCount(
                queue=queue,
                ready=depths[queue].ready + depths[suspects_of(queue)].ready,
                suspects=depths[suspects_of(queue)].ready,
            )
            for queue in sorted(found)
        ]
        delayed = sum(depths[each].ready for each in delays)
        if delayed:
            rows.append(QueueCount(queue=DELAYED, delayed=delayed))
        failed = await self._letters.counts(sorted({entry.failed for entry in found.values()}))
        return Depths(
            queues=rows,
            failed=failed,
            workers=None,
            counts_leased=False,
            in_hand=any(depths[each].consumers for each in names),
            unrouted=depths[UNROUTED].ready + self._unrouted.held,
        )

    async def where(self, operations: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Find letters and unrouted events; what waits in a queue cannot be looked for."""
        wanted = frozenset(operations)
        places: dict[str, list[str]] = {}
        if not wanted:
            return places
        for queue in await self._letters.names():
            for operation in await self._letters.search(queue, wanted):
                places.setdefault(operation, []).append(f"failed in {queue}")
        for event in await self._unrouted.read(sys.maxsize, operations=operations):
            places.setdefault(event.travel.operation, []).append(f"unrouted {event.event_type}")
        return places


class _Depth(NamedTuple):
    ready: int
    consumers: int


def _depths(channel: BlockingChannel, queues: Sequence[str]) -> dict[str, _Depth]:
    """Count what is ready in each queue, and who takes from it; one that was deleted is empty."""
    depths: dict[str, _Depth] = {}
    for queue in queues:
        if not channel.is_open:
            channel = channel.connection.channel()
        try:
            found = channel.queue_declare(queue, passive=True).method
            depths[queue] = _Depth(int(found.message_count), int(found.consumer_count))
        except ChannelClosedByBroker as error:
            if not is_refused(error, NOT_FOUND):
                raise
            depths[queue] = _Depth(0, 0)
    return depths
