"""How much a run may send, above all the first one after a downtime of the sweeper itself.

After a week without a sweep everything looks stuck, and most of it only looks so. So the first run
is careful, and each one after it may send twice as much, until nothing has to be held back.

What is remembered is kept as leases, which end by themselves: that a run came to its end not long
ago, and what the next one may send. Their token is the same for all sweepers.
"""

from dataclasses import dataclass

from headway.core.sweep_settings import SweepSettings
from headway.ports.leases import Leases

DOWNTIME = 4
"""Intervals without a run that came to its end."""
_RAN = "sweep/ran/"
_CAP = "sweep/cap/"
_ANYBODY = "sweeper"


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one run may send of one collection."""

    limit: int
    cap: int | None = None
    """It is lower than usual, after a downtime, and this is why."""


class Caps:
    """Says what runs may send, and takes down how they ended."""

    def __init__(self, leases: Leases, settings: SweepSettings) -> None:
        self._leases = leases
        self._settings = settings
        self._lasts = settings.interval * DOWNTIME

    async def allowance(self, collection: str) -> Allowance:
        """Say what a run may send of a collection."""
        usual = self._settings.limit
        if not self._settings.cap:
            return Allowance(usual)
        if f"{_RAN}{collection}" not in await self._leases.held(f"{_RAN}{collection}"):
            cap = self._settings.cap
        else:
            cap = max(await self._caps(collection), default=usual)
        return Allowance(usual) if cap >= usual else Allowance(cap, cap)

    async def ended(self, collection: str, given: Allowance, held_back: int) -> None:
        """Take down that a run came to its end, and what it could not send."""
        before = await self._caps(collection)
        after = given.cap * 2 if given.cap is not None and held_back else None
        if after is not None:
            await self._leases.hold(f"{_CAP}{after}/{collection}", _ANYBODY, self._lasts)
        for cap in before:
            if cap != after:
                await self._leases.let_go(f"{_CAP}{cap}/{collection}", _ANYBODY)
        await self._leases.hold(f"{_RAN}{collection}", _ANYBODY, self._lasts)

    async def _caps(self, collection: str) -> list[int]:
        found = []
        for name in await self._leases.held(_CAP):
            number, _, of = name.removeprefix(_CAP).partition("/")
            if of == collection and number.isdecimal():
                found.append(int(number))
        return found
