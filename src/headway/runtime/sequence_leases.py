"""Leases of the positions that a worker is at, renewed while slow work goes on."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from headway.core.sequence_answers import Turn
from headway.ports.clock import Clock
from headway.ports.sequences import Sequences
from headway.runtime.sequence_reach import is_unavailable

_BEATS = 3
"""In one lease: two of them may come too late."""


class SequenceLeases:
    """Renews while a block lasts. Whoever loses a lease all the same is refused at the end."""

    def __init__(self, sequences: Sequences, clock: Clock, *, renewing: bool) -> None:
        self._sequences = sequences
        self._clock = clock
        self._renewing = renewing

    @asynccontextmanager
    async def kept(self, works: Sequence[Turn]) -> AsyncIterator[None]:
        if not self._renewing:
            yield
            return
        beating = asyncio.create_task(self._renew(works, self._sequences.settings.lease / _BEATS))
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    async def _renew(self, works: Sequence[Turn], pause: timedelta) -> None:
        kept = list(works)
        while kept:
            await self._clock.wait(pause)
            renewed = await asyncio.gather(*(self._is_renewed(work) for work in kept))
            kept = [work for work, is_renewed in zip(kept, renewed, strict=True) if is_renewed]

    async def _is_renewed(self, work: Turn) -> bool:
        try:
            return await self._sequences.renew(work)
        except Exception as error:
            if is_unavailable(error):
                return True  # the next beat asks again
            raise
