"""The queues that a worker declares, and those that anybody ever declared."""

from collections.abc import Iterable, Sequence

from pika.adapters.blocking_connection import BlockingChannel

from headway.adapters.rabbitmq import declaring, journal
from headway.adapters.rabbitmq.catalogue import Catalogue
from headway.adapters.rabbitmq.desk import Desk
from headway.adapters.rabbitmq.history import NO_ENTRIES
from headway.adapters.rabbitmq.suspects import NO_NOTES
from headway.adapters.rabbitmq.topology import (
    CATALOGUE,
    HISTORY,
    journals_of,
    starts_of,
    suspects_of,
    topology,
)
from headway.core.errors import ConfigurationError
from headway.ports.bus import Message, Queue


class Queues:
    """Declares, and knows from the catalogue what others have declared."""

    def __init__(self, desk: Desk, catalogue: Catalogue, exchange: str, *, has_store: bool) -> None:
        self._desk = desk
        self._catalogue = catalogue
        self._exchange = exchange
        self._has_store = has_store
        self._own: dict[str, Queue] = {}
        self.cluster = ""
        """The name of the broker, or of its cluster, as it was when queues were declared."""

    async def declare(self, queues: Sequence[Queue] = ()) -> None:
        """Declare queues, and once more those that were declared before."""
        self._own |= {queue.name: queue for queue in queues}
        await self._desk.run(self._declare)

    def event_types(self) -> list[str]:
        """Name the types that the own queues take."""
        return list(dict.fromkeys(each for own in self._own.values() for each in own.event_types))

    def sources(self) -> Iterable[str]:
        """Name the own queues as the broker knows them."""
        return [source for queue in self._own for source in (queue, suspects_of(queue))]

    async def refuse_unknown(self, messages: Sequence[Message]) -> None:
        """Refuse queues that were never declared, before anything is published."""
        straight = {message.queue for message in messages if message.queue is not None}
        if straight <= self._catalogue.known.keys():
            return
        found = await self._catalogue.read()
        for queue in sorted(straight - found.keys()):
            known = ", ".join(sorted(found)) or "none"
            raise ConfigurationError(
                f"queue={queue!r} is not accepted: it was never declared; these are: {known}"
            )

    def takers(self, message: Message) -> int:
        """Say how many queues take a message that the broker could route, as far as is known."""
        if message.queue is not None:
            return 1
        known = self._catalogue.known.values()
        return sum(message.event_type in each.event_types for each in known) or 1

    def journal_of(self, queue: str) -> str:
        """Name the journal in which starts of the suspects of a work queue are noted."""
        known = self._own.get(queue) or self._catalogue.known.get(queue)
        if known is None:
            raise ConfigurationError(f"queue={queue!r} was never declared: start its service")
        return starts_of(known.failed)

    def _declare(self, channel: BlockingChannel) -> None:
        queues = list(self._own.values())
        self.cluster = declaring.cluster(channel)
        journals = [HISTORY, *journals_of(queues)]
        new = [name for name in journals if not journal.is_there(channel, name)]
        wanted = topology(
            queues, self._exchange, has_default_limit=declaring.has_default_limit(channel)
        )
        declaring.declare(channel, wanted, frozenset(queue.failed for queue in queues))
        connection = channel.connection
        for name in new:
            if name != CATALOGUE:
                first = NO_ENTRIES if name == HISTORY else NO_NOTES
                journal.start(connection.channel(), name, first)
        self._catalogue.add(
            connection.channel(), queues, has_store=self._has_store, is_new=CATALOGUE in new
        )
