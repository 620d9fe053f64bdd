"""Looks at keys, asked of a scheduler without waiting for it."""

import asyncio
from datetime import timedelta

from headway.core.sequence_facts import LookNotScheduled, LookScheduled
from headway.ports.resequencing import LookScheduler, SequenceWatcher


class Looks:
    """Has keys looked at later. No result waits for that: the index has the key already."""

    def __init__(self, scheduler: LookScheduler | None, watcher: SequenceWatcher) -> None:
        self._scheduler = scheduler
        self._watcher = watcher
        self._sending: set[asyncio.Task[None]] = set()

    def schedule(self, key: str, delay: timedelta, *, again: bool) -> None:
        """Have a key looked at; without a scheduler, whoever asks the index does."""
        if self._scheduler is None:
            self._watcher.tell(LookScheduled(key, delay, again))
            return
        sending = asyncio.create_task(self._send(self._scheduler, key, delay, again=again))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def settled(self) -> None:
        """Wait until every look that was asked for is scheduled, or could not be."""
        while self._sending:
            await asyncio.wait(self._sending)

    async def _send(
        self, scheduler: LookScheduler, key: str, delay: timedelta, *, again: bool
    ) -> None:
        try:
            await scheduler.schedule(key, delay)
        except Exception as error:  # noqa: BLE001 (whatever a broker's client raises)
            self._watcher.tell(LookNotScheduled(key, error))
        else:
            self._watcher.tell(LookScheduled(key, delay, again))
