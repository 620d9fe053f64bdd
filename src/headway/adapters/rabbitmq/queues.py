"""The queues that a worker declares, and those that anybody ever declared."""

from collections.abc import Iterable, Sequence

from pika.adapters.blocking_connection import BlockingChannel

from headway.adapters.rabbitmq import catalogue, declaring
from headway.adapters.rabbitmq.catalogue import Catalogue
from headway.adapters.rabbitmq.desk import Desk
from headway.adapters.rabbitmq.topology import suspects_of, topology
from headway.core.errors import ConfigurationError
from headway.ports.bus import Message, Queue


class Queues:
    """Declares, and knows from the catalogue what others have declared."""

    def __init__(self, desk: Desk, exchange: str, *, has_store: bool) -> None:
        self._desk = desk
        self._exchange = exchange
        self._has_store = has_store
        self._own: dict[str, Queue] = {}
        self._known: Catalogue = {}

    async def declare(self, queues: Sequence[Queue] = ()) -> None:
        """Declare queues, and once more those that were declared before."""
        self._own |= {queue.name: queue for queue in queues}
        self._known = await self._desk.run(self._declare)

    def sources(self) -> Iterable[str]:
        """Name the own queues as the broker knows them."""
        return [source for queue in self._own for source in (queue, suspects_of(queue))]

    async def refuse_unknown(self, messages: Sequence[Message]) -> None:
        """Refuse queues that were never declared, before anything is published."""
        straight = {message.queue for message in messages if message.queue is not None}
        if straight <= self._known.keys():
            return
        self._known = await self._desk.run(catalogue.read)
        for queue in sorted(straight - self._known.keys()):
            known = ", ".join(sorted(self._known)) or "none"
            raise ConfigurationError(
                f"queue={queue!r} is not accepted: it was never declared; these are: {known}"
            )

    def takers(self, message: Message) -> int:
        """Say how many queues take a message that the broker could route, as far as is known."""
        if message.queue is not None:
            return 1
        return sum(message.event_type in each.event_types for each in self._known.values()) or 1

    def _declare(self, channel: BlockingChannel) -> Catalogue:
        queues = list(self._own.values())
        wanted = topology(
            queues, self._exchange, has_default_limit=declaring.has_default_limit(channel)
        )
        declaring.declare(channel, wanted, frozenset(queue.failed for queue in queues))
        return catalogue.add(channel.connection.channel(), queues, has_store=self._has_store)
