"""Put a consumer together: store, sequences, counters."""

from collections.abc import Callable
from datetime import datetime

from headway.clock import CHANCE, CLOCK, Chance, Clock
from headway.engines import open_sequences
from headway.order import LookScheduler
from headway.systems.uptime.metrics import Counting
from headway.systems.uptime.processor import ResultProcessor
from headway.systems.uptime.saying import UptimeLog
from headway.systems.uptime.settings import UptimeSettings
from headway.systems.uptime.sqlite_store import SqliteStore

FAMILY = "uptime"


def open_store(settings: UptimeSettings) -> SqliteStore:
    """Open the file that the settings name; nothing is written before the first use."""
    place = settings.store_place()
    return SqliteStore(place.path, synchronous=place.synchronous)


class SourceProgress:
    """How far the source was read: what a batch said last holds for looks too."""

    def __init__(self) -> None:
        self.caught_up: datetime | None = None
        self.ask: Callable[[], datetime | None] | None = None
        """Whoever knows better at any time."""

    def __call__(self) -> datetime | None:
        return self.caught_up if self.ask is None else self.ask()


async def open_processor(
    settings: UptimeSettings,
    counts: Counting,
    *,
    scheduler: LookScheduler | None = None,
    progress: SourceProgress | None = None,
    clock: Clock | None = None,
    chance: Chance = CHANCE,
) -> ResultProcessor:
    """Open a consumer for the running event loop; it has to be closed.

    With a clock of a test, leases are not renewed: that clock jumps while a real engine works.
    """
    store = open_store(settings)
    await store.prepare()
    sequences = open_sequences(
        settings.sequences_url, family=FAMILY, settings=settings.order(), clock=clock
    )
    return ResultProcessor(
        store,
        sequences,
        clock=clock or CLOCK,
        chance=chance,
        counts=counts,
        features=settings.features(),
        regions=settings.region_modes(),
        scheduler=scheduler,
        watcher=UptimeLog(),
        progress=progress or SourceProgress(),
        patience=settings.patience,
        renewing=clock is None,
    )
