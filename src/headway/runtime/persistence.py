"""Keep asking an engine that is away, with pauses, for as long as the caller is not cancelled."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from headway.core.backoff import Exponential
from headway.ports.chance import Chance
from headway.ports.clock import Clock

T = TypeVar("T")
_PAUSES = Exponential(base=timedelta(milliseconds=100), cap=timedelta(seconds=5))


class Persistent:
    """Calls an engine until it answers. For calls that can be repeated."""

    def __init__(self, clock: Clock, chance: Chance) -> None:
        self._clock = clock
        self._chance = chance

    async def ask(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Give the answer of `call()`, however often it has to be called."""
        tries = 0
        while True:
            try:
                answer = await call()
            except Exception:
                tries += 1
                pause = _PAUSES.delay(tries, self._chance.draw())
                logging.getLogger("headway").error(  # noqa: TRY400 (see below)
                    "The engine did not %s (try %d); trying again in %.1fs",
                    what,
                    tries,
                    pause.total_seconds(),
                    exc_info=tries == 1,  # the same traceback every few seconds helps nobody
                )
                await self._clock.wait(pause)
            else:
                if tries:
                    logging.getLogger("headway").warning(
                        "The engine answers again: it did %s after %d tries", what, tries + 1
                    )
                return answer
