"""A worker: takes events, gives them to lanes, and has every end committed."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import Any

from headway.core.errors import ConfigurationError, StorageLostError
from headway.core.facts import Fact
from headway.core.policy import RetryConfig
from headway.core.sweep_settings import SweepSettings
from headway.core.worker_settings import LAST_COMMIT, WorkerSettings
from headway.ports.bus import Message, Queue
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.ports.observer import Observer
from headway.runtime.admission import Admission
from headway.runtime.attempt import Attempt, Ending
from headway.runtime.collection_names import CollectionNames
from headway.runtime.committing import Committer
from headway.runtime.down_notes import DownNotes
from headway.runtime.feeding import Feeder
from headway.runtime.fitness import (
    refuse_short_retention,
    refuse_unfit,
    refuse_without_store,
    shortest_lease,
    warn_of_stages,
)
from headway.runtime.forked_loop import ForkedLoop
from headway.runtime.gate import Gate
from headway.runtime.housekeeping import Housekeeping
from headway.runtime.lanes import Lanes
from headway.runtime.lease_keeping import LeaseKeeper
from headway.runtime.lease_waiters import LeaseWaiters
from headway.runtime.leaving import Leaving
from headway.runtime.left_queues import warn_of_left_queues
from headway.runtime.live_handlers import LiveHandlers
from headway.runtime.observers import Observers
from headway.runtime.persistence import Isolation
from headway.runtime.prefetch import Prefetch
from headway.runtime.reach import Reach
from headway.runtime.recover import Recovery
from headway.runtime.service import Service
from headway.runtime.storeless import CURE
from headway.runtime.sweeper import Sweeper
from headway.runtime.unrouted import UnroutedNotice, tell_of_routed
from headway.runtime.watchdog import SlowHandlers, Watchdog

_LOG = logging.getLogger("headway")
_HINTS_AFTER = timedelta(seconds=5)
"""A worker that starts has a backlog: looking for mistakes must not slow it down."""


class Worker:
    """Runs services on an engine, in one process and one event loop."""

    def __init__(
        self,
        services: Sequence[Service],
        engine: Engine,
        *,
        clock: Clock,
        chance: Chance,
        observer: Observer,
        retry: RetryConfig | None = None,
        settings: WorkerSettings | None = None,
        sweep: SweepSettings | None = None,
        name: str = "worker",
        place: str = "",
        beats_in_thread: bool = False,
        end_process: Callable[[], None] | None = None,
    ) -> None:
        refuse_unfit(services)
        if not engine.has_store:
            refuse_without_store(services)
        self._engine = engine
        self._name = name
        self._place = place
        """The engine, as log lines name it."""
        self._clock = clock
        self._settings = settings or WorkerSettings()
        refuse_short_retention(self._settings.retention, services, retry or RetryConfig())
        self._recoveries = [
            Recovery(service, retry or RetryConfig(), chance, worker=name) for service in services
        ]
        by_queue = {
            queue.name: recovery
            for recovery in self._recoveries
            for queue in recovery.service.queues()
        }
        self._beats_in_thread = beats_in_thread
        token = f"{name}/{chance.token()}"
        self._leases = LeaseKeeper(
            name, engine.bus, shortest_lease(services), clock, engine.documents_aside
        )
        self._observer = Observers(observer, *self._notes(services, token))
        self._persistent = Isolation(engine, clock, chance, token)
        self._gate = Gate(self._recoveries)
        self._committer = Committer(
            engine.finisher,
            self._persistent,
            clock,
            chance,
            rerun=self._rerun,
            settled=self._settled,
            released=self._leases.let_go,
            leave=Leaving(engine.documents, clock).leave,
            handled=self._handled,
            unhandled=self._unhandled,
            unrouted=self._unrouted,
            announced=self._announced,
            tell=self._tell,
        )
        self._on_routed = tell_of_routed(services, self._tell)
        self._housekeeping = Housekeeping(
            engine,
            clock,
            chance,
            self._settings.retention,
            event_types=[each for service in services for _, each in service.subscriptions],
            on_routed=self._on_routed,
        )
        self._unrouted_notice = UnroutedNotice(engine.unrouted, clock, self._tell)
        self._reach = Reach(engine.bus, [each.name for each in services], clock, self._tell)
        self._waiters = LeaseWaiters(engine, self._leases, clock, self._persistent, self._tell)
        admission = Admission(
            by_queue,
            engine,
            clock,
            leases=self._leases,
            waiters=self._waiters,
            isolation=self._persistent,
        )
        sweeping = engine.sweeping
        names, self._live = None, None
        if sweeping is not None:
            names = CollectionNames(services, sweeping.desk, clock)
            self._live = LiveHandlers(services, sweeping.leases, token, clock, names)
        size = self._settings.concurrency
        self._lanes = Lanes(
            size,
            engine,
            clock,
            chance,
            admission.join,
            persistent=self._persistent,
            names=names,
            ended=self._ended,
            broken=self._break,
        )
        self._aside: set[asyncio.Task[Any]] = set()
        self._notices: set[asyncio.Task[None]] = set()
        self._waiting: set[Attempt] = set()
        """Attempts whose commit lost, until their handler runs again."""
        self._draining = False
        self._feeder = Feeder(
            engine.bus,
            admission,
            self._gate,
            self._lanes,
            self._waiters,
            recoveries=by_queue,
            prefetch=Prefetch(self._settings.concurrency, self._settings.prefetch),
            persistent=self._persistent,
            clock=clock,
            chance=chance,
            ended=self._ended,
            is_ending=self._committer.holds,
            tell=self._tell,
        )
        limits = [service.slow_after for service in services]
        self._slow_handlers = SlowHandlers(self._lanes, limits, clock)
        self._watchdog: Watchdog | None = None
        if end_process is not None:
            self._watchdog = Watchdog(
                self._lanes,
                lambda: self._feeder.in_hand > 0,
                self._leases,
                engine,
                partial(Leaving, clock=clock),
                grace=self._settings.grace,
                end=end_process,
            )
        self._stop = asyncio.Event()
        self._has_lost_storage = False
        self._broken_by: BaseException | None = None
        """An error of our own that stopped it."""
        self._first: Sweeper | None = None
        if self._settings.requeue_at_start:
            self._first = Sweeper(
                services,
                engine,
                clock=clock,
                chance=chance,
                observer=self._observer,
                settings=sweep,
                is_open=True,
            )

    def _notes(self, services: Sequence[Service], token: str) -> Sequence[Observer]:
        """Give what tells sweepers of outages, where there is a store to tell it through."""
        if self._engine.sweeping is None:
            return ()
        probes = {service.name: service.outage.probe_at_most for service in services}
        leases = self._engine.sweeping.leases
        return (DownNotes(leases, token, probes, self._clock, self._put_aside),)

    @property
    def handlers_left(self) -> int:
        """How many handlers still run after the end: nothing could stop them."""
        return self._lanes.handlers_left

    def stop(self) -> None:
        """Take nothing more, finish what is running, hand the rest back, and end."""
        self._stop.set()

    def told_to_stop(self) -> None:
        """Note that an order to stop has come, from any thread: the loop may be blocked."""
        if self._watchdog is not None:
            self._watchdog.told_to_stop()

    def reload(self, retry: RetryConfig) -> None:
        """Apply new retry settings, and resume event types that were paused."""
        services = [recovery.service for recovery in self._recoveries]
        refuse_short_retention(self._settings.retention, services, retry)
        for recovery in self._recoveries:
            before = recovery.retry
            recovery.configure(retry)
            _LOG.info(
                "Retry settings of %s reloaded: %s",
                recovery.service.name,
                _difference(before, recovery.retry),
            )
            for resumed in recovery.resume():
                self._tell(resumed)

    async def run(self) -> None:
        """Work until `stop` is called."""
        try:
            is_open = await self._open()
            if is_open and self._first is not None:
                await self._first.sweep_once(self._stop.is_set)
        except BaseException:
            await self._engine.close()
            raise
        if not is_open:
            await self._engine.close()
            return
        names = ", ".join(_with_version(recovery.service) for recovery in self._recoveries)
        place = f" on {self._place}" if self._place else ""
        _LOG.info("Running %s%s (process %d)", names, place, os.getpid())
        services = [recovery.service for recovery in self._recoveries]
        warn_of_stages(services)
        if not self._engine.has_store:
            _LOG.warning(
                "There is no store, so every event is handled at least once: a redelivery is not "
                "recognised, and work.documents and work.transaction are refused (such an event "
                "becomes a letter at once). To have them, and effects that happen once, %s",
                CURE,
            )
        committing = asyncio.create_task(self._committer.run())
        feeding = asyncio.create_task(self._feeder.run())
        keeping = asyncio.create_task(self._housekeeping.run())
        reaching = asyncio.create_task(self._reach.run())
        waiting = asyncio.create_task(
            self._waiters.run(self._feeder.readmit, self._feeder.put_back)
        )
        naming = asyncio.create_task(self._slow_handlers.run())
        stopping = asyncio.create_task(self._until_stopped())
        hinting = asyncio.create_task(self._hint(services))
        self._lanes.start()
        own = ForkedLoop(asyncio.get_running_loop())
        watching = nullcontext() if self._watchdog is None else self._watchdog.watching()
        tasks = {committing, feeding, keeping, reaching, waiting, naming, stopping}
        async with watching, self._leases.keeping(in_thread=self._beats_in_thread):
            try:
                ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in ended - {stopping}:
                    task.result()  # they never end by themselves: raise what ended this one
            except StorageLostError:
                self._has_lost_storage = True  # nothing can be handed back or committed
                raise
            finally:
                await _cancel(feeding, keeping, reaching, waiting, naming, stopping, hinting)
                if self._has_lost_storage:
                    await self._lanes.end()
                else:
                    await self._drain()
                await _cancel(committing, *self._aside, *self._notices)
                await self._engine.close()
                del own  # until here a child that is forked has nothing of this loop
        if self._broken_by is not None:
            raise self._broken_by

    async def _hint(self, services: Sequence[Service]) -> None:
        """Warn of queues without a handler and of other workers that compete, until cancelled."""
        await self._clock.wait(_HINTS_AFTER)
        await warn_of_left_queues(services, self._engine.places)
        if self._live is not None:
            await self._live.run()

    def _break(self, error: BaseException) -> None:
        self._broken_by = self._broken_by or error
        self.stop()

    async def _open(self) -> bool:
        """Open the engine, however long it is away; False: told to stop meanwhile."""
        queues = [queue for each in self._recoveries for queue in each.service.queues()]
        opening = asyncio.create_task(
            self._persistent.until_available(
                "Opening the engine",
                partial(self._open_engine, queues),
                unless=lambda error: isinstance(error, ConfigurationError),
            )
        )
        stopping = asyncio.create_task(self._until_stopped())
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                opening.result()
            return opening.done()
        finally:
            await _cancel(opening, stopping)

    async def _open_engine(self, queues: Sequence[Queue]) -> None:
        await self._engine.open(queues, self._on_routed)
        for service in (recovery.service for recovery in self._recoveries):
            names = [queue.name for queue in service.queues()]
            await self._engine.bus.announce(
                service.name, service.version, names, service.version_grace
            )

    async def _drain(self) -> None:
        """Hand back what no handler is working on, and give the rest its time."""
        self._draining = True
        for attempt in (*self._lanes.withdraw(), *self._waiting, *self._waiters.withdraw()):
            self._committer.put(attempt.recovery.handed_back(attempt))
        self._committer.release_held()
        await self._within(self._settings.grace, self._lanes.quiet())
        await self._lanes.end()
        # What ended must be committed. If the engine is away, it is not worth waiting for ever:
        # whatever is not settled comes back to another worker.
        await self._within(max(self._settings.grace, LAST_COMMIT), self._committer.flush())
        if self._notices:
            await self._within(LAST_COMMIT, self._noticed())
        if self._live is not None:
            await self._within(LAST_COMMIT, self._live.leave())

    async def _noticed(self) -> None:
        await asyncio.wait(self._notices)

    async def _within(self, patience: timedelta, coming: Coroutine[Any, Any, None]) -> None:
        """Wait for something, but not for ever."""
        over = asyncio.create_task(self._clock.wait(patience))
        done = asyncio.create_task(coming)
        await asyncio.wait({over, done}, return_when=asyncio.FIRST_COMPLETED)
        await _cancel(over, done)

    async def _until_stopped(self) -> None:
        await self._stop.wait()

    def _rerun(self, attempt: Attempt, delay: timedelta) -> None:
        """Run a handler again soon, within the same attempt: its commit came too late."""
        if self._draining:
            self._committer.put(attempt.recovery.handed_back(attempt))
            return

        async def later() -> None:
            await self._clock.wait(delay)
            if not self._draining:  # then it was handed back
                self._waiting.discard(attempt)
                self._lanes.put(attempt)

        self._waiting.add(attempt)
        self._put_aside(asyncio.create_task(later()))

    def _ended(self, ending: Ending) -> None:
        if ending.permanent:
            # At once, and not when it is committed: a fast handler would spoil a whole batch first.
            queue = ending.unit.delivery.queue
            self._tell_if(ending.recovery.watch(queue, self._clock.now(), permanent=1))
        self._committer.put(ending)
        self._feeder.moved()

    def _settled(self, count: int) -> None:
        self._feeder.settled(count)

    def _handled(self, attempts: Sequence[Attempt]) -> None:
        """Handlers of one subscription succeeded: whatever was wrong for it is over."""
        recovery, subscription = attempts[0].recovery, attempts[0].subscription
        now = self._clock.now()
        self._tell_if(recovery.watch(subscription.queue, now))
        if self._gate.is_probing:
            for attempt in attempts:
                if attempt.is_probe:
                    self._gate.probed(attempt.delivery.queue)
        if recovery.health.untroubled:
            return
        for back in recovery.health.succeeded(subscription.event_type, now):
            self._tell(back)
            if self._engine.bus.finds_parked:
                resume = partial(self._engine.bus.resume, subscription.queue)
                resuming = self._persistent.until_available("Resuming parked events", resume)
                self._put_aside(asyncio.create_task(resuming))

    def _unhandled(self, ending: Ending) -> None:
        """An event ended otherwise, or not at all."""
        attempt = ending.attempt
        if attempt is not None and attempt.is_probe:
            self._gate.probed(attempt.delivery.queue)
            self._tell_if(ending.recovery.watch(attempt.delivery.queue, self._clock.now()))

    def _unrouted(self, service: str, event_types: frozenset[str]) -> None:
        """No queue took some of the events that a handler published."""
        due = self._unrouted_notice.due(event_types)
        if due:
            self._notify(self._unrouted_notice.tell_of(due, service))

    def _announced(self, service: str, outgoing: Sequence[Message]) -> None:
        """Events were published, some perhaps of a type that needs no consumer."""
        first = self._unrouted_notice.first(outgoing)
        if first:
            self._notify(self._unrouted_notice.tell_of_dropped(first, service))

    def _notify(self, telling: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(telling)
        self._notices.add(task)
        task.add_done_callback(self._notices.discard)

    def _tell_if(self, fact: Fact | None) -> None:
        if fact is not None:
            self._tell(fact)

    def _put_aside(self, task: asyncio.Task[Any]) -> None:
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    def _tell(self, fact: Fact) -> None:
        self._observer.tell(fact)


def _with_version(service: Service) -> str:
    return f"{service.name} {service.version}" if service.version else service.name


def _difference(before: RetryConfig, after: RetryConfig) -> str:
    old, new = asdict(before), asdict(after)
    changed = [f"{name} {old[name]} -> {new[name]}" for name in old if old[name] != new[name]]
    return ", ".join(changed) or "nothing changed"


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
