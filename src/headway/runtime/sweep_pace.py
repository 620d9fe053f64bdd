"""Spread what is sent over the time."""

from datetime import datetime, timedelta

from headway.ports.clock import Clock


class Pace:
    """Lets so many through in a second, evenly; with a rate of 0, all at once."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._due: datetime | None = None

    def at_once(self, most: int) -> int:
        """Say how many may go together: at most what a second allows, and one at least."""
        return most if not self._rate else max(1, min(most, int(self._rate)))

    async def wait(self, count: int) -> None:
        """Wait until so many may go."""
        if not self._rate:
            return
        now = self._clock.now()
        due = now if self._due is None else max(self._due, now)
        if due > now:
            await self._clock.wait(due - now)
        self._due = due + timedelta(seconds=count / self._rate)
