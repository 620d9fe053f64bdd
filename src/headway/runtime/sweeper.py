"""The sweeper: finds documents that are stuck, and sends their events again."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from headway.core.backoff import Exponential
from headway.core.catalogue import DEFAULT_CLASSIFIER
from headway.core.errors import ConfigurationError
from headway.core.facts import Fact
from headway.core.showing import described, shown
from headway.core.sweep import SweepRule
from headway.core.sweep_facts import CollectionFailed, CollectionSwept, SweepEnded
from headway.core.sweep_settings import SweepSettings
from headway.core.sweep_totals import Status
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine, Sweeping
from headway.ports.observer import Observer
from headway.runtime.collection_names import misnamed
from headway.runtime.down_notes import DOWN
from headway.runtime.fitness import warn_of_stages
from headway.runtime.observers import Observers
from headway.runtime.service import Service
from headway.runtime.storeless import needs_store
from headway.runtime.sweep_collections import Collections, OnProgress, said
from headway.runtime.sweep_counts import Counts, of_collection, of_errors, of_run
from headway.runtime.sweep_leading import BEAT, Leadership
from headway.runtime.sweep_pace import Stopping
from headway.runtime.sweep_targets import Target, find_targets, of_live_version
from headway.runtime.unrouted import tell_of_routed

__all__ = ["AfterRun", "OnProgress", "Sweeper"]

AfterRun = Callable[[], Awaitable[None]]
_LOG = logging.getLogger("headway")
_SOON = Exponential(base=timedelta(seconds=1), cap=timedelta(minutes=1))
"""How long a run waits that follows one which met nobody, if they answer again by then."""


class Sweeper:
    """Sweeps once, or again and again. Several may do so at the same time: claims part them."""

    def __init__(
        self,
        services: Sequence[Service],
        engine: Engine,
        *,
        clock: Clock,
        chance: Chance,
        observer: Observer,
        settings: SweepSettings | None = None,
        collections: Collection[str] = (),
        is_open: bool = False,
        on_progress: OnProgress | None = None,
        after_run: AfterRun | None = None,
    ) -> None:
        if engine.sweeping is None:
            raise needs_store("a sweep")
        self._settings = settings or SweepSettings()
        self.targets = find_targets(services, self._settings, collections)
        self._engine = engine
        self._sweeping: Sweeping = engine.sweeping
        self._clock = clock
        self._chance = chance
        self._observer = Observers(observer)
        self._on_routed = tell_of_routed(services, self._tell)
        self._is_open = is_open
        self._unchecked = () if is_open else tuple(services)
        """Services that no worker has looked at: it warns of what they share."""
        self._after_run = after_run
        self._counts = Counts(self._sweeping.totals, [t.collection for t in self.targets])
        self._collections = Collections(
            self._sweeping,
            engine.bus,
            self._settings,
            clock=clock,
            chance=chance,
            tell=self._tell,
            on_progress=on_progress,
        )
        self._stop = asyncio.Event()
        self._has_looked = False
        self._met_nobody = False
        """The run that goes on, or was the last, met a store or bus that was away."""
        self._lost_runs = 0
        """How many in a row did."""

    @property
    def rules(self) -> Sequence[SweepRule]:
        """The rules of all collections that are swept."""
        return [target.rule for target in self.targets]

    def stop(self) -> None:
        """End after what is being sent now, with no claim left behind."""
        self._stop.set()

    async def run(self) -> None:
        """Sweep at every interval until told to stop."""
        if not self._settings.leader:
            while not self._stop.is_set():
                await self._pause_after(await self.sweep_once())
            return
        leading = Leadership(self._sweeping.leases, self._chance.token(), self._clock)

        async def is_over() -> bool:
            return self._stop.is_set() or not await leading.lasts()

        async with leading.keeping():
            while not self._stop.is_set():
                try:
                    is_ours = leading.is_ours or await leading.ask()
                except Exception:  # noqa: BLE001 (the store is away: the run says so, and counts)
                    await self._pause_after(await self.sweep_once())
                    continue
                if is_ours:
                    await self._pause_after(await self._sweep_once(is_over))
                else:
                    await self._pause(BEAT)

    async def sweep_once(self, stopping: Callable[[], bool] = lambda: False) -> SweepEnded:
        """Sweep every collection once; what goes wrong with one does not keep the others waiting.

        Needs no leader: claims see to it that no attempt is made twice.
        """

        async def is_over() -> bool:
            return self._stop.is_set() or stopping()

        return await self._sweep_once(is_over)

    async def _sweep_once(self, stopping: Stopping) -> SweepEnded:
        began = self._clock.now()
        self._met_nobody = False
        errors: Counter[str] = Counter()
        swept: list[CollectionSwept] = []
        try:
            if not await self._open():
                return await self._ended(began, self._untouched(), errors)
            await self._look_at_names()
            down = await self._sweeping.leases.held(DOWN)
        except ConfigurationError:
            raise  # a person has to mend it
        except Exception as error:  # noqa: BLE001 (whatever a driver raises when the engine is unavailable)
            errors[type(error).__name__] += 1
            self._tell(CollectionFailed(collection="", error=error))
            swept = await self._not_swept(said(error))
        else:
            for target in self.targets:
                if await stopping():
                    break
                swept.append(await self._sweep(target, down, stopping, errors))
            swept += self._untouched()[len(swept) :]
        return await self._ended(began, swept, errors)

    def _untouched(self) -> list[CollectionSwept]:
        """Say of all collections that nobody has looked at them: what is stuck there is unknown."""
        return [CollectionSwept(collection=target.collection) for target in self.targets]

    async def _not_swept(self, why: str) -> list[CollectionSwept]:
        """Say what is stuck all the same, if it is only the bus that does not answer."""
        swept = []
        is_there = True
        for target in self.targets:
            # A store that is away is asked once: to find that out may take it long.
            tally = await self._collections.tally(target) if is_there else None
            is_there = tally is not None
            swept.append(CollectionSwept(collection=target.collection, broken_by=why, tally=tally))
        return swept

    async def _open(self) -> bool:
        """Open the engine; False: told to stop, and it does not answer."""
        if self._is_open:
            return True
        queues = [target.queue for target in self.targets]
        opening = asyncio.create_task(self._engine.open(queues, self._on_routed))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                opening.result()
            self._is_open = opening.done()
        finally:
            opening.cancel()
            stopping.cancel()
        return self._is_open

    async def _look_at_names(self) -> None:
        """Warn once of collections whose names may be mistyped: else nobody would ever notice."""
        if self._has_looked:
            return
        self._has_looked = True
        warn_of_stages(self._unchecked)
        with suppress(Exception):  # whatever a driver raises: the sweep says what is wrong
            names = [target.collection for target in self.targets]
            found = misnamed(names, await self._sweeping.desk.collections())
            for name, near in found.items():
                _LOG.warning(
                    "There is no document in %s, which is to be swept: did you mean %s? Then "
                    "mend documents= of its handler",
                    shown(name),
                    shown(near),
                )

    async def _sweep(
        self, target: Target, down: Collection[str], stopping: Stopping, errors: Counter[str]
    ) -> CollectionSwept:
        target = await of_live_version(target, self._engine.bus)
        swept = await self._collections.sweep(target, down, stopping)
        try:
            await self._counts.add(of_collection(swept))
        except Exception as error:  # noqa: BLE001 (it is added with the next that is stored)
            errors[type(error).__name__] += 1
        return swept

    async def _ended(
        self, began: datetime, swept: Sequence[CollectionSwept], errors: Counter[str]
    ) -> SweepEnded:
        failed = bool(errors) or any(each.errors for each in swept)
        status = Status.FAILURE if failed else Status.SUCCESS
        elapsed = self._clock.now() - began
        totals = None
        try:
            totals = await self._counts.add({**of_run(status, elapsed), **of_errors(errors)})
        except Exception as error:  # noqa: BLE001 (it is added with the next that is stored)
            _LOG.debug("Could not store the totals of sweeps: %s", described(error))
        ended = SweepEnded(
            status=status,
            ended=self._clock.now(),
            elapsed=elapsed,
            collections=tuple(swept),
            errors=dict(errors),
            totals=totals,
        )
        self._tell(ended)
        if self._after_run is not None:
            try:
                await self._after_run()
            except Exception:  # noqa: BLE001 (whoever shows what was done must not end it)
                _LOG.exception("What follows a sweep failed: %r", self._after_run)
        return ended

    async def _pause_after(self, ended: SweepEnded) -> None:
        """Wait until the next run is due: never less than a tenth of the interval.

        One that met nobody is made up for soon, when they answer again.
        """
        interval = self._settings.interval
        due = max(interval - ended.elapsed, interval / 10)
        if not self._met_nobody:
            self._lost_runs = 0
            await self._pause(due)
            return
        self._lost_runs += 1
        pause = min(_SOON.delay(self._lost_runs, 1.0), due)
        until = self._clock.now() + due
        await self._pause(pause)
        while not self._stop.is_set() and self._clock.now() < until and not await self._answers():
            await self._pause(pause)

    async def _answers(self) -> bool:
        try:
            await self._sweeping.leases.held(DOWN)
        except Exception:  # noqa: BLE001 (whatever a driver raises when the engine is unavailable)
            return False
        return True

    async def _pause(self, delay: timedelta) -> None:
        waiting = asyncio.create_task(self._clock.wait(delay))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping.cancel()

    def _tell(self, fact: Fact) -> None:
        if isinstance(fact, CollectionFailed):
            kind = DEFAULT_CLASSIFIER.classify(fact.error).error_type
            self._met_nobody = self._met_nobody or kind == "CONNECTION_ERROR"
        self._observer.tell(fact)
