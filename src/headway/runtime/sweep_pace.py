"""Spread what is sent over the time."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from headway.ports.clock import Clock

Stopping = Callable[[], Awaitable[bool]]
"""Says whether to end, between two steps."""
_LOOK_UP = timedelta(seconds=1)
_ZERO = timedelta()


class Pace:
    """Lets so many through in a second, evenly; with a rate of 0, all at once."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._due: datetime | None = None

    def at_once(self, most: int) -> int:
        """Say how many may go together: at most what a second allows, and one at least."""
        return most if not self._rate else max(1, min(most, int(self._rate)))

    async def wait(self, count: int, stopping: Stopping) -> bool:
        """Wait until so many may go; False: told to stop meanwhile."""
        if not self._rate:
            return True
        due = max(self._due or self._clock.now(), self._clock.now())
        while (left := due - self._clock.now()) > _ZERO:
            if await stopping():
                return False
            await self._clock.wait(min(left, _LOOK_UP))
        self._due = due + timedelta(seconds=count / self._rate)
        return True
