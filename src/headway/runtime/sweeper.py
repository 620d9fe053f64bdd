"""The sweeper: finds documents that are stuck, and sends their events again."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta

from headway.core.errors import ConfigurationError
from headway.core.facts import Fact
from headway.core.sweep import SweepRule
from headway.core.sweep_facts import (
    CollectionFailed,
    CollectionLeftAlone,
    CollectionSwept,
    DocumentsHeldBack,
    SweepEnded,
)
from headway.core.sweep_settings import SweepSettings
from headway.core.sweep_totals import Skip, Status
from headway.core.tally import Tally
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine, Sweeping
from headway.ports.observer import Observer
from headway.runtime.down_notes import DOWN
from headway.runtime.observers import Observers
from headway.runtime.service import Service
from headway.runtime.storeless import needs_store
from headway.runtime.sweep_caps import Caps
from headway.runtime.sweep_counts import Counts, of_collection, of_errors, of_run
from headway.runtime.sweep_doubts import doubt
from headway.runtime.sweep_leading import BEAT, Leadership
from headway.runtime.sweep_pace import Pace
from headway.runtime.sweep_pages import Pages, Stopping
from headway.runtime.sweep_pauses import Pauses
from headway.runtime.sweep_run import CollectionRun
from headway.runtime.sweep_targets import Target, find_targets

OnProgress = Callable[[str, int, int], None]
"""Hears the collection, how many documents were looked at, and of how many."""
AfterRun = Callable[[], Awaitable[None]]
_LOG = logging.getLogger("headway")


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
        self._is_open = is_open
        self._prepared: set[str] = set()
        self._on_progress = on_progress
        self._after_run = after_run
        self._counts = Counts(self._sweeping.totals, [t.collection for t in self.targets])
        self._caps = Caps(self._sweeping.leases, self._settings)
        self._pauses = Pauses(self._settings.interval)
        self._stop = asyncio.Event()

    @property
    def rules(self) -> Sequence[SweepRule]:
        """The rules of all collections that are swept."""
        return [target.rule for target in self.targets]

    def stop(self) -> None:
        """End after the page that is at hand."""
        self._stop.set()

    async def run(self) -> None:
        """Sweep at every interval until told to stop."""
        if not self._settings.leader:
            while not self._stop.is_set():
                await self._pause_after(await self.sweep_once())
            return
        leading = Leadership(self._sweeping.leases, self._chance.token(), self._clock)
        async with leading.keeping():
            while not self._stop.is_set():
                try:
                    is_ours = leading.is_ours or await leading.ask()
                except Exception:  # noqa: BLE001 (the store is away: the run says so, and counts)
                    await self._pause_after(await self.sweep_once())
                    continue
                if is_ours:
                    ended = await self.sweep_once(lambda: not leading.is_ours)
                    await self._pause_after(ended)
                else:
                    await self._pause(BEAT)

    async def sweep_once(self, stopping: Stopping = lambda: False) -> SweepEnded:
        """Sweep every collection once; what goes wrong with one does not keep the others waiting.

        Needs no leader: claims see to it that no attempt is made twice.
        """
        began = self._clock.now()
        errors: Counter[str] = Counter()
        swept: list[CollectionSwept] = []
        try:
            await self._open()
            down = await self._sweeping.leases.held(DOWN)
        except ConfigurationError:
            raise  # a person has to mend it
        except Exception as error:  # noqa: BLE001 (whatever a driver raises when nobody answers)
            errors[type(error).__name__] += 1
            self._tell(CollectionFailed(collection="", error=error))
            swept = await self._not_swept()
        else:
            for target in self.targets:
                if self._stop.is_set() or stopping():
                    break
                swept.append(await self._sweep(target, down, stopping, errors))
        return await self._ended(began, swept, errors)

    async def _not_swept(self) -> list[CollectionSwept]:
        """Say what is stuck all the same, if it is only the bus that does not answer."""
        swept = []
        is_there = True
        for target in self.targets:
            # A store that is away is asked once: to find that out may take it long.
            tally = await self._tally(target) if is_there else None
            is_there = tally is not None
            swept.append(CollectionSwept(collection=target.collection, tally=tally))
        return swept

    async def _open(self) -> None:
        if not self._is_open:
            await self._engine.open([target.queue for target in self.targets])
            self._is_open = True

    async def _sweep(
        self, target: Target, down: Collection[str], stopping: Stopping, errors: Counter[str]
    ) -> CollectionSwept:
        run = self._collection_run(target)
        try:
            await self._prepare(target)
            if not self._is_left_alone(target, down):
                await self._walk(target, run, stopping)
            elif (found := await self._tally(target)) is not None:
                run.skipped[Skip.DOWN] += found.stuck
        except Exception as error:  # noqa: BLE001 (one bad collection does not end the run)
            run.errors[type(error).__name__] += 1
            self._tell(CollectionFailed(collection=target.collection, error=error))
        swept = run.swept(await self._tally(target))
        try:
            await self._counts.add(of_collection(swept))
        except Exception as error:  # noqa: BLE001 (it is added with the next that is stored)
            errors[type(error).__name__] += 1
        return swept

    def _collection_run(self, target: Target) -> CollectionRun:
        return CollectionRun(
            target,
            self._sweeping.candidates,
            self._engine.bus,
            self._clock,
            token=self._chance.token(),
            claim=self._settings.claim,
            pace=Pace(self._settings.rate, self._clock),
            tell=self._tell,
        )

    async def _prepare(self, target: Target) -> None:
        if target.collection not in self._prepared:
            await self._sweeping.candidates.prepare([target.rule])
            self._prepared.add(target.collection)

    def _is_left_alone(self, target: Target, down: Collection[str]) -> bool:
        pause = self._pauses.left_alone(target, down, self._clock.now())
        if pause is None:
            return False
        subscription = target.subscription
        self._tell(
            CollectionLeftAlone(
                collection=target.collection,
                service=subscription.service,
                event_type=subscription.event_type,
                pause=pause,
            )
        )
        return True

    async def _walk(self, target: Target, run: CollectionRun, stopping: Stopping) -> None:
        name, now = target.collection, self._clock.now()
        given = await self._caps.allowance(name)
        since = now - self._settings.interval
        doubted = await doubt(target, self._sweeping, now, since)
        if doubted is not None:
            self._tell(doubted)
        pages = Pages(
            target,
            self._sweeping.candidates,
            self._clock,
            newest_first=self._settings.newest_first,
            doubted_since=None if doubted is None else since,
        )
        on_page = await self._on_page(target)
        to_the_end = await run.run(
            pages, given.limit, lambda: self._stop.is_set() or stopping(), on_page
        )
        if run.held_back:
            self._tell(
                DocumentsHeldBack(
                    collection=name,
                    count=run.held_back,
                    limit=given.limit,
                    after_downtime=given.cap is not None,
                )
            )
        if to_the_end:
            await self._caps.ended(name, given, run.held_back)

    async def _on_page(self, target: Target) -> Callable[[int], None]:
        """Give what hears of each page; only if anybody watches, it is counted beforehand."""
        tell = self._on_progress
        if tell is None:
            return lambda _met: None
        tally, met = await self._tally(target), 0
        of = 0 if tally is None else tally.stuck

        def heard(more: int) -> None:
            nonlocal met
            met += more
            tell(target.collection, met, max(of, met))

        return heard

    async def _tally(self, target: Target) -> Tally | None:
        try:
            return await self._sweeping.candidates.tally(target.rule, self._clock.now())
        except Exception as error:  # noqa: BLE001 (unknown, and never 0)
            _LOG.debug("What is stuck in %s is unknown: %s", target.collection, error)
            return None

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
            _LOG.debug("The totals of sweeps could not be stored: %s", error)
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
        """Wait until the next run is due: never less than a tenth of the interval."""
        interval = self._settings.interval
        await self._pause(max(interval - ended.elapsed, interval / 10))

    async def _pause(self, delay: timedelta) -> None:
        waiting = asyncio.create_task(self._clock.wait(delay))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping.cancel()

    def _tell(self, fact: Fact) -> None:
        self._observer.tell(fact)
