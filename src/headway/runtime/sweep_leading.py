"""Of several sweepers that run, one leads: it holds a lease, and renews it while it lives."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta

from headway.ports.clock import Clock
from headway.ports.leases import Leases

LEADER = "sweep/leader"
LEASE = timedelta(seconds=60)
BEAT = LEASE / 3
_PATIENCE = timedelta(seconds=5)
"""How long the end of a process may wait for a store that is away."""
_LOG = logging.getLogger("headway")


class Leadership:
    """Knows whether this sweeper leads. Claims protect documents even if two believe so."""

    def __init__(self, leases: Leases, token: str, clock: Clock) -> None:
        self._leases = leases
        self._token = token
        self._clock = clock
        self._until: datetime | None = None
        self._stands_by = False

    @property
    def is_ours(self) -> bool:
        return self._until is not None and self._clock.now() < self._until

    async def ask(self) -> bool:
        """Take the lease, or renew it; say whether it is ours."""
        # By our own clock, from before it was asked for: we stop believing in time.
        until = self._clock.now() + LEASE
        self._until = until if await self._leases.hold(LEADER, self._token, LEASE) else None
        self._say(stands_by=self._until is None)
        return self._until is not None

    async def lasts(self) -> bool:
        """Say whether it is still ours; one that was not renewed in time is asked for again."""
        try:
            return self.is_ours or await self.ask()
        except Exception:  # noqa: BLE001 (whatever a driver raises: then nobody knows)
            return False

    def _say(self, *, stands_by: bool) -> None:
        if stands_by and not self._stands_by:
            _LOG.info(
                "Another sweeper leads: this one stands by, and takes over within %gs when that "
                "one is gone",
                (LEASE + BEAT).total_seconds(),
            )
        elif self._stands_by and not stands_by:
            _LOG.info("This sweeper leads now")
        self._stands_by = stands_by

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Renew it inside the block, for as long as it is ours; give it up at the end."""
        renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with suppress(Exception):  # whatever a driver raises: it ends by itself
                async with asyncio.timeout(_PATIENCE.total_seconds()):
                    await self._leases.let_go(LEADER, self._token)

    async def _renew(self) -> None:
        while True:
            await self._clock.wait(BEAT)
            if self._until is not None:
                with suppress(Exception):  # whatever a driver raises: until it ends, it is ours
                    await self.ask()
