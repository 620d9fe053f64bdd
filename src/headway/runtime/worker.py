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
from headway.core.facts import Fact, FloodChanged
from headway.core.policy import RetryConfig
from headway.core.sweep_settings import SweepSettings
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.ports.observer import Observer
from headway.runtime.admission import Admission
from headway.runtime.attempt import Attempt, Ending
from headway.runtime.committing import Committer
from headway.runtime.down_notes import DownNotes
from headway.runtime.feeding import Feeder
from headway.runtime.fitness import (
    refuse_short_retention,
    refuse_unfit,
    refuse_without_store,
    shortest_lease,
)
from headway.runtime.forked_loop import ForkedLoop
from headway.runtime.gate import Gate
from headway.runtime.housekeeping import Housekeeping
from headway.runtime.lanes import Lanes
from headway.runtime.lease_keeping import LeaseKeeper
from headway.runtime.leaving import Leaving
from headway.runtime.observers import Observers
from headway.runtime.persistence import Isolation
from headway.runtime.prefetch import Prefetch
from headway.runtime.reach import Reach
from headway.runtime.recover import Recovery
from headway.runtime.service import Service
from headway.runtime.storeless import CURE
from headway.runtime.sweeper import Sweeper
from headway.runtime.watchdog import Watchdog
from headway.runtime.worker_settings import LAST_COMMIT, WorkerSettings

_LOG = logging.getLogger("headway")


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
        beats_in_thread: bool = False,
        end_process: Callable[[], None] | None = None,
    ) -> None:
        refuse_unfit(services)
        if not engine.has_store:
            refuse_without_store(services)
        self._engine = engine
        self._name = name
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
        self._leases = LeaseKeeper(token, shortest_lease(services), clock, engine.documents_aside)
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
            tell=self._tell,
        )
        self._housekeeping = Housekeeping(engine, clock, chance, self._settings.retention)
        self._reach = Reach(engine.bus, [each.name for each in services], clock, self._tell)
        admission = Admission(by_queue, engine, clock, self._leases, self._persistent)
        size = self._settings.concurrency
        self._lanes = Lanes(
            size,
            engine,
            clock,
            chance,
            admission.join,
            persistent=self._persistent,
            ended=self._ended,
            broken=self.stop,
        )
        self._aside: set[asyncio.Task[Any]] = set()
        self._waiting: set[Attempt] = set()
        """Attempts whose commit lost, until their handler runs again."""
        self._draining = False
        self._feeder = Feeder(
            engine.bus,
            admission,
            self._gate,
            self._lanes,
            recoveries=by_queue,
            prefetch=Prefetch(self._settings.concurrency, self._settings.prefetch),
            persistent=self._persistent,
            clock=clock,
            ended=self._ended,
            tell=self._tell,
        )
        self._watchdog: Watchdog | None = None
        if end_process is not None:
            self._watchdog = Watchdog(
                self._lanes,
                self._leases,
                engine,
                partial(Leaving, clock=clock),
                grace=self._settings.grace,
                end=end_process,
            )
        self._stop = asyncio.Event()
        self._has_lost_storage = False
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
    def threads_left(self) -> int:
        """How many plain functions still run after the end; nobody can stop them."""
        return self._lanes.threads_left

    def stop(self) -> None:
        """Take nothing more, finish what is running, hand the rest back, and end."""
        self._stop.set()

    def told_to_stop(self) -> None:
        """Note that an order to stop has come, from any thread: the loop may be blocked."""
        if self._watchdog is not None:
            self._watchdog.told_to_stop()

    def reload(self, retry: RetryConfig) -> None:
        """Take new retry settings, and go on if a flood of letters had paused a service."""
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
            if recovery.paused:
                recovery.flood.resume()
                self._tell(FloodChanged(service=recovery.service.name, paused=False))

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
        names = ", ".join(recovery.service.name for recovery in self._recoveries)
        _LOG.info("Running %s (process %d)", names, os.getpid())
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
        stopping = asyncio.create_task(self._until_stopped())
        self._lanes.start()
        own = ForkedLoop(asyncio.get_running_loop())
        watching = nullcontext() if self._watchdog is None else self._watchdog.watching()
        tasks = {committing, feeding, keeping, reaching, stopping}
        async with watching, self._leases.keeping(in_thread=self._beats_in_thread):
            try:
                ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in ended - {stopping}:
                    task.result()  # they never end by themselves: raise what ended this one
            except StorageLostError:
                self._has_lost_storage = True  # nothing can be handed back or committed
                raise
            finally:
                await _cancel(feeding, keeping, reaching, stopping)
                if self._has_lost_storage:
                    await self._lanes.end()
                else:
                    await self._drain()
                await _cancel(committing, *self._aside)
                await self._engine.close()
                del own  # until here a child that is forked has nothing of this loop

    async def _open(self) -> bool:
        """Open the engine, however long it is away; False: told to stop meanwhile."""
        queues = [queue for each in self._recoveries for queue in each.service.queues()]
        opening = asyncio.create_task(
            self._persistent.until_available(
                "Opening the engine",
                partial(self._engine.open, queues),
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

    async def _drain(self) -> None:
        """Hand back what no handler is working on, and give the rest its time."""
        self._draining = True
        for attempt in (*self._lanes.withdraw(), *self._waiting):
            self._committer.put(attempt.recovery.handed_back(attempt))
        self._committer.release_held()
        await self._within(self._settings.grace, self._lanes.quiet())
        await self._lanes.end()
        # What ended must be committed. If the engine is away, it is not worth waiting for ever:
        # whatever is not settled comes back to another worker.
        await self._within(max(self._settings.grace, LAST_COMMIT), self._committer.flush())

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
            self._tell_if(ending.recovery.watch(self._clock.now(), permanent=1))
        self._committer.put(ending)
        self._feeder.moved()

    def _settled(self, count: int) -> None:
        self._feeder.settled(count)

    def _handled(self, attempts: Sequence[Attempt]) -> None:
        """Handlers of one subscription succeeded: whatever was wrong for it is over."""
        recovery, subscription = attempts[0].recovery, attempts[0].subscription
        now = self._clock.now()
        self._tell_if(recovery.watch(now))
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

    def _tell_if(self, fact: Fact | None) -> None:
        if fact is not None:
            self._tell(fact)

    def _put_aside(self, task: asyncio.Task[Any]) -> None:
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    def _tell(self, fact: Fact) -> None:
        self._observer.tell(fact)


def _difference(before: RetryConfig, after: RetryConfig) -> str:
    old, new = asdict(before), asdict(after)
    changed = [f"{name} {old[name]} -> {new[name]}" for name in old if old[name] != new[name]]
    return ", ".join(changed) or "nothing changed"


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
