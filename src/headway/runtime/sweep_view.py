"""Look up the figures of sweeps, and have them shown.

Totals are read from the store each time: what other processes added is in them. They only rise, and
they must be seen to: Prometheus takes each step down for a new beginning, and counts all of it once
more. So whoever pushes holds a lease from before it reads them until they are pushed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from headway.core.facts import Fact
from headway.core.failure import words
from headway.core.secrets import hidden
from headway.core.sweep import SweepRule
from headway.core.sweep_facts import SweepEnded
from headway.core.sweep_figures import SweepFigures, held_back
from headway.core.sweep_totals import GROUP
from headway.core.tally import Tally
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Sweeping
from headway.ports.gateway import Gateway

PUSHING = "headway.sweep.push"
"""The lease of whoever pushes."""
_LEASE = timedelta(seconds=120)
_LOOK_AGAIN = timedelta(milliseconds=200)
_LOOKS = 50
PATIENCE = timedelta(seconds=60)
"""How long the store may take for its answers, all together: it counts what is stuck."""
_ANSWER = timedelta(seconds=10)
"""How long it may take to say who is pushing."""
_RECENT = 3
"""Intervals for which the last run of this process says anything: others may lead by now."""
_LOG = logging.getLogger("headway")


class SweepView:
    """Remembers the last run of this process, and asks the store for the rest."""

    def __init__(
        self,
        sweeping: Sweeping,
        rules: Sequence[SweepRule],
        clock: Clock,
        chance: Chance,
        *,
        interval: timedelta = timedelta(seconds=900),
        live: Callable[[SweepRule], Awaitable[SweepRule]] | None = None,
    ) -> None:
        self._sweeping = sweeping
        self._rules = tuple(rules)
        self._clock = clock
        self._token = chance.token()
        self._live = live
        """Gives a rule with the version that runs at the moment."""
        self._recent = interval * _RECENT
        self._last: SweepEnded | None = None
        self._shown: Mapping[str, float] | None = None
        self._was_up = True

    def tell(self, fact: Fact) -> None:
        """Hear of runs, as an observer of the sweeper."""
        if isinstance(fact, SweepEnded):
            self._last = fact

    @property
    def last_run(self) -> datetime | None:
        """When the last run of this process ended; None: none has."""
        return None if self._last is None else self._last.ended

    async def look(self, patience: timedelta = PATIENCE) -> SweepFigures:
        """Ask the store; what it does not say in time is unknown."""
        now = self._clock.now()
        tallies: dict[str, Tally | None] = {rule.collection: None for rule in self._rules}
        totals = None
        wrong: Exception | None = None
        try:
            async with asyncio.timeout(patience.total_seconds()):
                totals = await self._sweeping.totals.add(GROUP, {})
                for rule in self._rules:
                    try:
                        live = rule if self._live is None else await self._live(rule)
                        tallies[rule.collection] = await self._sweeping.candidates.tally(live, now)
                    except Exception as error:  # noqa: BLE001 (one collection hides no other)
                        wrong = error
        except Exception as error:  # noqa: BLE001 (whatever the driver of some store raises)
            wrong = error
        self._heard(wrong)
        return self._figures(now, tallies, totals)

    async def answer(self, patience: timedelta) -> SweepFigures:
        """Say what a scrape is told: counters stand still while the store is away."""
        found = await self.look(patience)
        if found.totals is None:
            return replace(found, last_totals=self._last_totals)
        self._shown = found.totals
        return found

    def answer_at_once(self) -> SweepFigures:
        """Say the same without asking anybody."""
        return replace(self.unknown(), last_totals=self._last_totals)

    @property
    def _last_totals(self) -> Mapping[str, float] | None:
        # What was shown must not fall, and what a run was told may be older.
        return self._last.totals if self._shown is None and self._last else self._shown

    def unknown(self) -> SweepFigures:
        """Give what is known without asking anybody."""
        nothing = dict.fromkeys(rule.collection for rule in self._rules)
        return self._figures(self._clock.now(), nothing, None)

    async def begin(self, gateway: Gateway) -> None:
        """Push the totals before the first run, so that what it adds is seen to be added.

        Nothing is counted yet: the indexes for it may be missing.
        """
        await self._push(gateway, self._totals)

    async def push(self, gateway: Gateway) -> None:
        """Push what is known now. A gateway that is away is said, and disturbs nobody."""
        await self._push(gateway, self.look)

    async def _totals(self) -> SweepFigures:
        async with asyncio.timeout(_ANSWER.total_seconds()):
            totals = await self._sweeping.totals.add(GROUP, {})
        return self._figures(self._clock.now(), {}, totals)

    async def _push(self, gateway: Gateway, look: Callable[[], Awaitable[SweepFigures]]) -> None:
        try:
            is_ours = await self._turn()
            figures = await look() if is_ours else None
        except Exception as error:  # noqa: BLE001 (whatever the driver of some store raises)
            self._heard(error)
            figures = self.unknown()
        if figures is None:
            _LOG.warning(
                "%s got nothing after this sweep, others were pushing all the time: the next push "
                "brings it",
                gateway,
            )
            return
        try:
            await gateway.push(figures)
        except OSError as error:
            _LOG.warning(
                "%s did not take the metrics of this sweep (%s): the next push brings them",
                gateway,
                hidden(words(error)),
            )
        finally:
            with suppress(Exception):  # whatever a driver raises: it ends by itself
                async with asyncio.timeout(_ANSWER.total_seconds()):
                    await self._sweeping.leases.let_go(PUSHING, self._token)

    async def _turn(self) -> bool:
        """Wait until nobody else is pushing; False: that took too long."""
        for _ in range(_LOOKS):
            async with asyncio.timeout(_ANSWER.total_seconds()):
                if await self._sweeping.leases.hold(PUSHING, self._token, _LEASE):
                    return True
            await self._clock.wait(_LOOK_AGAIN)
        return False

    def _figures(
        self,
        now: datetime,
        tallies: Mapping[str, Tally | None],
        totals: Mapping[str, float] | None,
    ) -> SweepFigures:
        last, collections = self._last, tuple(rule.collection for rule in self._rules)
        is_recent = last is not None and now - last.ended <= self._recent
        return SweepFigures(
            at=now,
            collections=collections,
            tallies=tallies,
            totals=totals,
            held_back=held_back(last, collections) if last is not None and is_recent else {},
            last_run=self.last_run,
        )

    def _heard(self, error: Exception | None) -> None:
        if error is not None and self._was_up:  # once for each outage: the metric tells the rest
            _LOG.warning(
                "The store could not be asked what is stuck (%s: %s): metrics say unknown",
                type(error).__name__,
                hidden(words(error)) or "no answer in time",
            )
        self._was_up = error is None
