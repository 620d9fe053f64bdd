"""A consumer inside a process that is not asynchronous itself: one event loop for all its life.

Worker processes of Arroyo and Celery call it from their own threads. A loop made anew for each
result would connect anew for each result.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache

from headway.clock import CLOCK, Clock
from headway.order import LookScheduler, LoopThread
from headway.systems.uptime.metrics import Tally
from headway.systems.uptime.opening import SourceProgress, open_processor
from headway.systems.uptime.processor import Handled, ResultProcessor
from headway.systems.uptime.settings import UptimeSettings
from headway.systems.uptime.store import UptimeStore

_LOG = logging.getLogger("headway")

_FLUSH_EVERY = timedelta(seconds=1)
_LOOK_EVERY = timedelta(seconds=1)
_LOOK_AT_MOST_EVERY = timedelta(seconds=0.1)
_LOOK_BESIDE_SCHEDULER = timedelta(seconds=30)
"""Where tasks look, the index is only asked for what they forgot."""


class Host:
    """One consumer with its event loop, its looks and its counters."""

    def __init__(
        self,
        settings: UptimeSettings,
        *,
        scheduler: LookScheduler | None = None,
        progress: SourceProgress | None = None,
    ) -> None:
        self.settings = settings
        self.progress = progress or SourceProgress()
        self._scheduler = scheduler
        self._tally = Tally()
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = LoopThread("headway-uptime")
        self._processor = self._thread.run(self._opened())

    def handle(self, raws: Sequence[bytes], caught_up: datetime | None = None) -> list[Handled]:
        """Take results from the source; may be called by any thread."""
        self.progress.caught_up = caught_up
        return self._thread.run(self._processor.handle_results(raws, caught_up))

    def look(self, key: str) -> timedelta | None:
        """Look at one key, as a scheduled task does."""
        return self._thread.run(self._processor.process_uptime_backlog(key))

    def flush(self) -> None:
        """Add what was counted to the store's counters."""
        self._thread.run(self._flush())

    def close(self) -> None:
        """Finish what is at hand, count it, and end."""
        self._thread.run(self._closed())
        self._thread.close()

    async def _opened(self) -> ResultProcessor:
        processor = await open_processor(
            self.settings, self._tally, scheduler=self._scheduler, progress=self.progress
        )
        looks = processor.backlog.run(look_every(self.settings))
        self._tasks.append(asyncio.create_task(looks))
        flushing = flushed_to(processor.store, self._tally, CLOCK)
        self._tasks.append(asyncio.create_task(flushing))
        return processor

    async def _closed(self) -> None:
        self._processor.backlog.stop()
        *looks, flushing = self._tasks
        await asyncio.gather(*looks)
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing
        await self._flush()
        await self._processor.close()

    async def _flush(self) -> None:
        await flush(self._processor.store, self._tally)


async def flushed_to(store: UptimeStore, tally: Tally, clock: Clock) -> None:
    """Add what a process counts to the store's counters, once in a second."""
    while True:
        await clock.wait(_FLUSH_EVERY)
        await flush(store, tally)


async def flush(store: UptimeStore, tally: Tally) -> None:
    """Add what was counted to the store's counters; what it does not take stays in the tally."""
    counts = tally.taken()
    if not counts:
        return
    try:
        # Whoever ends this in the middle must not lose what was taken out of the tally.
        await asyncio.shield(store.count(counts))
    except Exception:  # noqa: BLE001 (of any store: no result waits for what is only counted)
        _LOG.exception("What was counted could not be stored; the next round tries again")
        tally.give_back(counts)


def look_every(settings: UptimeSettings) -> timedelta:
    """Say how often a process asks the index of due keys."""
    every = _LOOK_BESIDE_SCHEDULER if settings.celery_broker else _LOOK_EVERY
    return max(every * min(settings.time_scale, 1.0), _LOOK_AT_MOST_EVERY)


def scheduler_in(settings: UptimeSettings) -> LookScheduler | None:
    """Give what schedules looks, if the settings name a broker for that."""
    if not settings.celery_broker:
        return None
    from headway.systems.uptime.scheduling import scheduler_of  # noqa: PLC0415 (an extra)

    return scheduler_of(settings)


@cache  # one for the whole life of a worker process, which is all that calls this
def host_of(settings: UptimeSettings) -> Host:
    """Give the consumer of this process."""
    return Host(settings, scheduler=scheduler_in(settings), progress=progress_in(settings))


@cache
def progress_in(settings: UptimeSettings) -> SourceProgress:  # noqa: ARG001 (one for each)
    """Give what the consumer of this process asks how far the source is read.

    Whoever knows has to be named before the consumer is opened: it looks at backlogs at once.
    """
    return SourceProgress()
