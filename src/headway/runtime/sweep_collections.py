"""Sweep one collection: how much may be sent of it, what is left alone, and what came of it."""

import logging
from collections.abc import Callable, Collection

from headway.core.facts import Fact
from headway.core.failure import words
from headway.core.secrets import hidden
from headway.core.sweep_facts import (
    CollectionFailed,
    CollectionLeftAlone,
    CollectionSwept,
    DocumentsHeldBack,
)
from headway.core.sweep_settings import SweepSettings
from headway.core.sweep_totals import Skip
from headway.core.tally import Tally
from headway.ports.bus import Bus
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Sweeping
from headway.runtime.sweep_caps import Caps
from headway.runtime.sweep_doubts import doubt
from headway.runtime.sweep_pace import Pace, Stopping
from headway.runtime.sweep_pages import Pages
from headway.runtime.sweep_pauses import Pauses
from headway.runtime.sweep_run import CollectionRun, Room
from headway.runtime.sweep_targets import Target

OnProgress = Callable[[str, int, int], None]
"""Hears the collection, how many documents were looked at, and of how many."""
_LOG = logging.getLogger("headway")


class Collections:
    """Sweeps collections of one store; remembers what the next run over each should know."""

    def __init__(
        self,
        sweeping: Sweeping,
        bus: Bus,
        settings: SweepSettings,
        *,
        clock: Clock,
        chance: Chance,
        tell: Callable[[Fact], None],
        on_progress: OnProgress | None = None,
    ) -> None:
        self._sweeping = sweeping
        self._bus = bus
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._tell = tell
        self._on_progress = on_progress
        self._caps = Caps(sweeping.leases, settings)
        self._pauses = Pauses(settings.interval)
        self._prepared: set[str] = set()

    async def sweep(
        self, target: Target, down: Collection[str], stopping: Stopping
    ) -> CollectionSwept:
        """Sweep a collection, by the notes about what is down; whatever goes wrong is told."""
        run = CollectionRun(
            target,
            self._sweeping.candidates,
            self._bus,
            self._clock,
            token=self._chance.token(),
            claim=self._settings.claim,
            pace=Pace(self._settings.rate, self._clock),
            tell=self._tell,
        )
        try:
            await self._prepare(target)
            probes = self._pauses.probes(target, down, self._clock.now())
            if probes is None:
                await self._send(target, run, stopping)
            else:
                await self._probe(target, run, probes, stopping)
        except Exception as error:  # noqa: BLE001 (one bad collection does not end the run)
            run.errors[type(error).__name__] += 1
            run.broken_by = said(error)
            self._tell(
                CollectionFailed(collection=target.collection, error=error, claims=run.claims)
            )
        return run.swept(await self.tally(target))

    async def _prepare(self, target: Target) -> None:
        if target.collection not in self._prepared:
            await self._sweeping.candidates.prepare([target.rule])
            self._prepared.add(target.collection)

    async def _send(self, target: Target, run: CollectionRun, stopping: Stopping) -> None:
        given = await self._caps.allowance(target.collection)
        to_the_end = await self._walk(target, run, Room(given.limit), stopping)
        if run.held_back:
            self._tell(
                DocumentsHeldBack(
                    collection=target.collection,
                    count=run.held_back,
                    limit=given.limit,
                    after_downtime=given.cap is not None,
                )
            )
        if to_the_end:
            await self._caps.ended(target.collection, given, run.held_back)

    async def _probe(
        self, target: Target, run: CollectionRun, probes: int, stopping: Stopping
    ) -> None:
        """Send no more than a probe; what has failed for the last time is given up all the same."""
        try:
            await self._walk(target, run, Room(probes, Skip.DOWN), stopping)
        finally:
            now = self._clock.now()
            if run.requeued:
                self._pauses.probed(target, now)
            self._tell(
                CollectionLeftAlone(
                    collection=target.collection,
                    service=target.subscription.service,
                    event_type=target.subscription.event_type,
                    probes=run.requeued,
                    pause=self._pauses.left(target, now),
                )
            )

    async def _walk(
        self, target: Target, run: CollectionRun, room: Room, stopping: Stopping
    ) -> bool:
        now = self._clock.now()
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
        return await run.run(pages, room, stopping, await self._on_page(target))

    async def _on_page(self, target: Target) -> Callable[[int], None]:
        """Give what hears of each page; only if anybody watches, it is counted beforehand."""
        tell = self._on_progress
        if tell is None:
            return lambda _met: None
        tally, met = await self.tally(target), 0
        of = 0 if tally is None else tally.stuck

        def heard(more: int) -> None:
            nonlocal met
            met += more
            tell(target.collection, met, max(of, met))

        return heard

    async def tally(self, target: Target) -> Tally | None:
        """Count what is stuck in a collection; None: unknown."""
        try:
            return await self._sweeping.candidates.tally(target.rule, self._clock.now())
        except Exception as error:  # noqa: BLE001 (unknown, and never 0)
            _LOG.debug("What is stuck in %s is unknown: %s", target.collection, said(error))
            return None


def said(error: Exception) -> str:
    """Write an error for whoever reads what became of a run."""
    return f"{type(error).__name__}: {hidden(words(error))}"
