"""Now and then: send what a dead worker left unsent, route events, forget what is long past."""

from collections.abc import Sequence
from datetime import timedelta

from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.ports.unrouted import OnStep
from headway.runtime.finishing import dispatch_left_over
from headway.runtime.persistence import Persistent

_ROUND = timedelta(minutes=1)
_LEFT_BEHIND = timedelta(minutes=1)
_AT_ONCE = 1000


class Housekeeping:
    """One round a minute, in every worker: the rounds of several do not disturb each other."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        chance: Chance,
        retention: timedelta,
        *,
        event_types: Sequence[str] = (),
        on_routed: OnStep | None = None,
    ) -> None:
        self._engine = engine
        self._on_routed = on_routed
        self._event_types = event_types
        """Types that this worker takes. One of their events may have been published between the
        publisher's look for a queue and the declaration of ours, and be unrouted."""
        self._clock = clock
        self._persistent = Persistent(clock, chance)
        self._retention = retention

    async def run(self) -> None:
        while True:
            await self._clock.wait(_ROUND)
            await self._persistent.until_available("Cleaning up", self.round)

    async def round(self) -> None:
        now = self._clock.now()
        records = await self._engine.records.undispatched(now - _LEFT_BEHIND, _AT_ONCE)
        if records:
            await dispatch_left_over(
                records, self._engine.records, self._engine.bus, self._engine.letters
            )
        await self._engine.unrouted.route(self._event_types, on_step=self._on_routed)
        while await self._engine.records.forget(now - self._retention, _AT_ONCE) == _AT_ONCE:
            pass
