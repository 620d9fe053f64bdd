"""Whether events still reach this worker.

A worker that lives and gets nothing looks like one that has nothing to do. So the engine is asked
for a proof, every few seconds.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from headway.core.facts import Fact, ReachChanged, Reached
from headway.core.showing import described
from headway.ports.bus import Bus
from headway.ports.clock import Clock

_EVERY = timedelta(seconds=5)
TOO_LONG = timedelta(seconds=30)


class Reach:
    """Tells when the last proof was, and when there was none for too long."""

    def __init__(
        self, bus: Bus, services: Sequence[str], clock: Clock, tell: Callable[[Fact], None]
    ) -> None:
        self._bus = bus
        self._services = services
        self._clock = clock
        self._tell = tell
        self._last = clock.now()
        self._silent = False

    async def run(self) -> None:
        while True:
            await self.look()
            await self._clock.wait(_EVERY)

    async def look(self) -> None:
        try:
            proven = await self._bus.proven()
        except Exception as error:  # noqa: BLE001 (whatever the engine raises: it is no proof)
            logging.getLogger("headway").debug("No proof from the engine: %s", described(error))
            proven = None
        now, before = self._clock.now(), self._last
        if proven is not None:
            self._last = proven
            for service in self._services:
                self._tell(Reached(service=service, at=proven))
        silent = now - self._last > TOO_LONG
        if silent is not self._silent:
            self._silent = silent
            lasted = now - before
            for service in self._services:
                self._tell(ReachChanged(service=service, silent=silent, lasted=lasted))
