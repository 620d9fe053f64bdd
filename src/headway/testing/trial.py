"""Try services without any server: an engine in memory, a clock that jumps, facts that are kept."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from headway.adapters.logs.observer import LogObserver
from headway.adapters.memory.engine import memory_engine
from headway.adapters.memory.state import State
from headway.core.letter import Letter
from headway.core.policy import RetryConfig
from headway.core.sweep_facts import SweepEnded
from headway.core.sweep_settings import SweepSettings
from headway.core.worker_settings import WorkerSettings
from headway.core.writes import ID, Document
from headway.ports.chance import Chance
from headway.ports.places import Balance, Depths
from headway.ports.unrouted import UnroutedEvent
from headway.runtime.collection_names import misnamed
from headway.runtime.failed_names import find_failed_queue
from headway.runtime.observers import Observers
from headway.runtime.publisher import Publisher
from headway.runtime.service import Service
from headway.runtime.sweeper import Sweeper
from headway.runtime.unrouted import UnroutedNotice
from headway.runtime.worker import Worker
from headway.testing.chance import Seeded
from headway.testing.clock import VirtualClock
from headway.testing.facts import Recorder

_LOG = logging.getLogger("headway")
_ROUND = timedelta(milliseconds=100)
_A_DAY = timedelta(days=1)


class Trial:
    """Services under test.

    In a test that is a coroutine:

        trial = Trial(service)
        await trial.publish("OrderPlaced", {"order": "a"})
        await trial.run()
        assert await trial.letters("orders.failed") == []

    The logger `headway` gets the lines that it gets in production.

    Where a test would be green without having tested anything, a trial raises AssertionError: its
    results are read while events wait and no worker has run, or `documents` is given a name that is
    nearly that of another collection.
    """

    def __init__(
        self,
        *services: Service,
        clock: VirtualClock | None = None,
        chance: Chance | None = None,
        retry: RetryConfig | None = None,
        settings: WorkerSettings | None = None,
    ) -> None:
        self.services = services
        self.clock = clock or VirtualClock()
        self.facts = Recorder()
        self._logs = LogObserver()
        self.state = State()
        self.chance = chance or Seeded()
        self._retry = retry
        self._settings = settings
        self.engine = memory_engine(self.clock, self.chance, self.state)
        notice = UnroutedNotice(self.engine.unrouted, self.clock, self._logs.tell)
        self.publisher = Publisher(self.engine.bus, self.clock, self.chance, notice=notice)
        self._opened = False

    async def publish(
        self, event_type: Any, data: Any = None, *, event_id: str | None = None
    ) -> int:
        """Publish an event; say how many queues took it."""
        await self.open()
        return await self.publisher.publish(event_type, data, event_id=event_id)

    async def open(self) -> None:
        """Declare the queues of all services."""
        if not self._opened:
            await self.engine.bus.open(
                [queue for service in self.services for queue in service.queues()]
            )
            self._opened = True

    async def run(self, *, at_most: timedelta | None = None) -> None:
        """Let a worker run until every event has ended, or so much time has passed.

        With `at_most`, a warning names what is left then. Without it, what is left after a day is
        AssertionError.
        """
        await self.open()
        async with self.running():
            start = self.clock.now()
            end = start + (_A_DAY if at_most is None else at_most)
            while (now := self.clock.now()) < end:
                if at_rest(await self.engine.places.depths()):
                    break
                # Rounds grow with the time that has passed: a day of short ones takes minutes.
                await self.clock.wait(max(_ROUND, (now - start) / 200))
        depths = await self.engine.places.depths()
        if at_rest(depths):
            return
        left = _left(depths)
        if at_most is None:
            raise AssertionError(
                f"Trial.run() ended after a day of virtual time with events left: {left}. Give "
                "at_most= if the test is about that, or find out what they wait for."
            )
        _LOG.warning("Trial.run(at_most=%s) ended with events left: %s.", at_most, left)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Worker]:
        """Have a worker running inside the block; it is stopped at the end."""
        worker = Worker(
            self.services,
            memory_engine(self.clock, self.chance, self.state),
            clock=self.clock,
            chance=self.chance,
            observer=Observers(self._logs, self.facts),
            retry=self._retry,
            settings=self._settings,
        )
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await task
            self._logs.flush()

    async def sweep(self, settings: SweepSettings | None = None) -> SweepEnded:
        """Sweep once for stuck documents, as a sweeper does that has been running all the time."""
        sweeper = Sweeper(
            self.services,
            memory_engine(self.clock, self.chance, self.state),
            clock=self.clock,
            chance=self.chance,
            observer=Observers(self._logs, self.facts),
            settings=settings or SweepSettings(cap=0),
        )
        return await sweeper.sweep_once()

    async def put(self, collection: str, *documents: Document) -> None:
        """Have documents there before the services run."""
        stored = self.state.documents.setdefault(collection, {})
        stored.update({str(each[ID]): msgspec.json.encode(each) for each in documents})

    async def balance(self) -> Balance:
        """Count every place."""
        return await self.engine.places.balance()

    async def letters(self, queue: str) -> Sequence[Letter]:
        """Give the dead letters of a failed queue, by its name or that of its service."""
        await self._check_ran()
        known = list(dict.fromkeys(service.failed_queue for service in self.services))
        return await self.engine.letters.read(find_failed_queue(queue, known), 1_000_000)

    async def unrouted(self) -> Sequence[UnroutedEvent]:
        """Give the events that no service of the trial takes, and that are not announced."""
        return await self.engine.unrouted.read(1_000_000)

    async def documents(
        self, collection: str, where: Mapping[str, Any] | None = None
    ) -> Sequence[Document]:
        """Give the documents of a collection."""
        await self._check_ran()
        lifecycles = [
            *(each for service in self.services for each in service.lifecycles),
            *(
                each.lifecycle
                for service in self.services
                for each in service.subscriptions.values()
                if each.lifecycle is not None
            ),
        ]
        there = [*self.state.documents, *(each.collection for each in lifecycles)]
        if meant := misnamed([collection], there).get(collection):
            raise AssertionError(
                f"Trial.documents({collection!r}): no document was written there. Did you mean "
                f"{meant!r}?"
            )
        return await self.engine.documents.find(collection, where or {}, 1_000_000)

    async def _check_ran(self) -> None:
        if self.state.gone or self.state.workers.keys() - {self.engine.bus}:  # one runs, or ran
            return
        depths = await self.engine.places.depths()
        if not at_rest(depths):
            raise AssertionError(
                f"The trial has not run, and events wait: {_left(depths)}. Call await trial.run() "
                "before you look at what came of them."
            )


def _left(depths: Depths) -> str:
    return ", ".join(
        f"{number} {what} in {queue.queue}"
        for queue in depths.queues
        for what, number in (
            ("ready", queue.ready),
            ("leased", queue.leased),
            ("delayed", queue.delayed),
            ("parked", queue.parked),
            ("held", queue.held),
        )
        if number
    )


def at_rest(depths: Depths) -> bool:
    """Say whether everything has ended."""
    return not any(
        queue.ready or queue.leased or queue.delayed or queue.parked or queue.held
        for queue in depths.queues
    )
