"""Move what is in hand to another place: publish a copy first, acknowledge then."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from headway.adapters.rabbitmq.outgoing import Outgoing
from headway.adapters.rabbitmq.suspects import Held
from headway.adapters.rabbitmq.taking import Taker
from headway.core.errors import NotPublishedError, UnsendableError
from headway.ports.bus import Delivery

_LOG = logging.getLogger("headway")

Moves = Sequence[tuple[Delivery, Outgoing]]


class Mover:
    """Moves deliveries, and settles those that need nothing more.

    Args:
        send: Publishes messages as they are, confirmed, and says whether a queue took each.
        taker: Acknowledges.
        taken: What is in hand.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Outgoing]], Awaitable[Sequence[bool]]],
        taker: Taker,
        taken: dict[Held, Delivery],
    ) -> None:
        self._send = send
        self._taker = taker
        self._taken = taken

    async def move(self, moves: Moves) -> None:
        # What came beside these cannot be read, so no copy would be the same.
        for delivery, _ in moves:
            if delivery.spoilt:
                self._set_aside(delivery, delivery.spoilt)
        moves = [each for each in moves if not each[0].spoilt]
        if not moves:
            return
        try:
            routed = await self._send([message for _, message in moves])
        except UnsendableError as error:
            await self._move_singly(moves, error)
            return
        helds = []
        for (delivery, message), is_routed in zip(moves, routed, strict=True):
            if not is_routed:
                raise NotPublishedError(
                    f"no queue took what was for {message.routing_key!r}: it was deleted"
                )
            self._taken.pop(delivery.receipt, None)
            helds.append(delivery.receipt)
        self.acknowledge(helds)

    def acknowledge(self, helds: Sequence[Held]) -> None:
        # Whatever has been lost since comes back to somebody, and its record recognises it.
        tags = [tag for epoch, tag in helds if self._taker.is_ours(epoch, tag)]
        if tags:
            self._taker.acknowledge(tags)

    async def _move_singly(self, moves: Moves, error: UnsendableError) -> None:
        """One of them can never be sent: the others go their way, and that one is set aside."""
        if len(moves) > 1:
            for each in moves:
                await self.move([each])
            return
        self._set_aside(moves[0][0], str(error))

    def _set_aside(self, delivery: Delivery, why: str) -> None:
        """Have the broker put a delivery into the failed queue as it came.

        For that it needs no message that it would not take. The event has an end there, and whoever
        reads the queue is shown a letter.
        """
        _LOG.error(
            "An event of %s is put into the failed queue as it came (operation %s): %s",
            delivery.queue,
            delivery.travel.operation,
            why,
        )
        self._taken.pop(delivery.receipt, None)
        epoch, tag = delivery.receipt
        if self._taker.is_ours(epoch, tag):
            self._taker.set_aside([tag])
