"""`connect`: publish and operate from a program of one's own."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from headway.adapters.logs.observer import LogObserver
from headway.adapters.system.chance import CHANCE
from headway.adapters.system.clock import CLOCK
from headway.assembly.engine import open_engine
from headway.assembly.settings import engine_settings, shown_engine
from headway.core.lifecycle import Lifecycle, State
from headway.core.writes import Document
from headway.ports.documents import MOST_FOUND, whole
from headway.ports.places import Balance, Depths
from headway.runtime.failed import FailedQueues
from headway.runtime.publisher import Publisher
from headway.runtime.service import Service
from headway.runtime.unrouted import UnroutedEvents, UnroutedNotice, tell_of_routed


class Connection:
    """An open engine, as a program sees it that publishes or operates."""

    def __init__(self, url: str | None) -> None:
        self._engine = open_engine(url)
        where = shown_engine(engine_settings(url))
        notice = UnroutedNotice(self._engine.unrouted, CLOCK, LogObserver().tell, where=where)
        self._publisher = Publisher(self._engine.bus, CLOCK, CHANCE, notice=notice)
        self.failed = FailedQueues(self._engine, CLOCK, CHANCE)
        """Letters: inspect, requeue, export, purge."""
        self.unrouted = UnroutedEvents(self._engine, CLOCK, CHANCE)
        """Events that no service takes: list, show, route, purge."""

    async def publish(
        self,
        event_type: Any,
        data: Any = None,
        *,
        event_id: str | None = None,
        version: str = "1.0",
    ) -> int:
        """Publish an event; when it returns, the event is stored.

        `publish("OrderPlaced", {"order": "7"})`, or an object of a type of data, whose name is the
        event type: `publish(OrderPlaced(order="7"))`.

        Says how many queues took it. 0: no service that handles this type was ever started here.
        Then the event is kept as unrouted until one is, and a warning in the log says so.
        """
        return await self._publisher.publish(event_type, data, event_id=event_id, version=version)

    async def publish_all(
        self, events: Sequence[tuple[str, Any]], *, event_ids: Sequence[str] | None = None
    ) -> int:
        """Publish events, each a type and its data; when it returns, all are stored.

        Says how many times a queue took one of them. Those that no service takes are kept as
        unrouted.

        On SQLite in one commit: all of them, or none. On RabbitMQ each is stored by itself: if this
        raises, `stored` of the error has the positions of those that are stored, and the others may
        be. Give `event_ids`, one for each event, and publish all of them again: what was stored
        before is recognised by its id.
        """
        return await self._publisher.publish_all(events, event_ids=event_ids)

    async def declare(self, *services: Service) -> None:
        """Make the queues of services, so that events can be published before they first run."""
        queues = [queue for service in services for queue in service.queues()]
        await self._engine.open(queues, tell_of_routed(services, LogObserver().tell))

    async def get_many(self, collection: str, ids: Sequence[str]) -> Mapping[str, Document]:
        """Give the documents that are there, by id."""
        return await self._engine.documents.fetch(collection, ids)

    async def find(
        self, collection: str, where: Mapping[str, Any] | None = None, *, limit: int | None = None
    ) -> Sequence[Document]:
        """Give documents whose fields hold these values, in the order of their ids.

        With `limit`, the first so many. Without it, all of them: more than 1,000 is ValueError.
        """
        wanted, most = where or {}, MOST_FOUND + 1 if limit is None else limit
        found = await self._engine.documents.find(collection, wanted, most)
        if limit is None:
            whole(found, collection, wanted)
        return found

    async def count(self, collection: str, where: Mapping[str, Any] | None = None) -> int:
        """Count the documents whose fields hold these values; without `where`, all of them.

        Gives the number of documents that `find` would give without a limit: 0 also if there is no
        such collection. The store filters; SQLite and PostgreSQL also count, unless a value is a
        number, a list or an object.
        """
        return await self._engine.documents.count(collection, where or {})

    async def tally(self, lifecycle: Lifecycle) -> Mapping[str, int]:
        """Count the documents of a collection by their state: `pending`, `processed`, `failed`.

        The store counts, and reads no document for it. States in which there is none are left out.
        """
        counted = await self._engine.documents.tally(lifecycle)
        return {state.value: counted[state] for state in State if counted.get(state)}

    async def depths(self) -> Depths:
        """Count what waits, by queue, and the dead letters. Cheap, however much is done."""
        return await self._engine.places.depths()

    async def balance(self) -> Balance:
        """Count the events in every place, what is done included. Reads every row: for checks."""
        return await self._engine.places.balance()

    async def close(self) -> None:
        await self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def connect(url: str | None = None) -> Connection:
    """Open an engine, to publish and to operate.

    Use it as `async with connect() as headway: await headway.publish(...)`. Without a URL it is
    the engine that HEADWAY_BUS names, or sqlite:///headway.db.
    """
    return Connection(url)
