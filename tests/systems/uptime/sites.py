"""A consumer on any engine, on a clock that a test moves."""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from headway.assembly.sequencing import OpenSequences
from headway.clock import Chance
from headway.metrics import Metric
from headway.order import SequenceSettings
from headway.systems.uptime import metrics
from headway.systems.uptime.memory_store import MemoryStore
from headway.systems.uptime.metrics import Tally
from headway.systems.uptime.monitors import Detector, RegionMode, Subscription
from headway.systems.uptime.processor import Handled, ResultProcessor
from headway.systems.uptime.results import CheckResult, CheckStatus, encode
from headway.systems.uptime.rollout import Features, everybody
from headway.systems.uptime.sqlite_store import SqliteStore
from headway.systems.uptime.store import UptimeRecords
from headway.testing.chance import Seeded
from headway.testing.clock import VirtualClock
from headway.testing.engines import MemorySequences, MemoryShelf, redis_sequences, sqlite_sequences

MINUTE = 60_000
FOUR = 4 * 60  # o'clock, in minutes
STEP = timedelta(seconds=5)


def at(minute: int) -> int:
    return minute * MINUTE


def check(
    minute: int,
    key: str = "s1",
    status: CheckStatus = CheckStatus.SUCCESS,
    region: str = "default",
) -> bytes:
    """Make the result of a check that was scheduled for a minute."""
    return encode(CheckResult(f"{key}-{minute}", key, status, at(minute), region=region))


class Scheduler:
    """Remembers which looks were asked for; or the broker is away."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.is_away = False

    async def schedule(self, key: str, delay: timedelta) -> None:
        if self.is_away:
            raise ConnectionRefusedError("no broker")
        self.asked.append((key, delay.total_seconds()))


@dataclass
class Site:
    """Engines, and consumers on them."""

    engine: str
    folder: Path
    url: str = ""
    settings: SequenceSettings = field(default_factory=SequenceSettings)
    clock: VirtualClock = field(default_factory=VirtualClock)
    counts: Tally = field(default_factory=Tally)
    scheduler: Scheduler = field(default_factory=Scheduler)
    chance: Chance = field(default_factory=Seeded)

    def __post_init__(self) -> None:
        self._shelf = MemoryShelf()
        self.store: UptimeRecords = (
            MemoryStore()
            if self.engine == "memory"
            else SqliteStore(self.folder / "uptime.db", synchronous="off")
        )
        self._opened: list[OpenSequences] = []

    async def open(self) -> None:
        """Make the tables, and a monitor that begins at four o'clock."""
        await self.store.prepare()
        await self.subscribe()

    async def subscribe(
        self,
        key: str = "s1",
        *,
        began: int = at(FOUR),
        regions: dict[str, RegionMode] | None = None,
        detector: Detector | None = None,
        watched: bool = True,
    ) -> None:
        subscription = Subscription(key, interval_since_ms=began, regions=regions or {})
        found = detector or Detector(f"d-{key}", "acme")
        await self.store.save([subscription], {key: found} if watched else {})

    def sequences(self) -> OpenSequences:
        match self.engine:
            case "memory":
                opened: OpenSequences = MemorySequences(self.clock, self.settings, self._shelf)
            case "sqlite":
                path = self.folder / "order.db"
                opened = sqlite_sequences(
                    path, self.clock, self.settings, family="uptime", synchronous="off"
                )
            case _:
                opened = redis_sequences(self.url, self.settings, prefix="uptime", clock=self.clock)
        self._opened.append(opened)
        return opened

    def consumer(
        self,
        *,
        sequences: OpenSequences | None = None,
        features: Features | None = None,
        store: UptimeRecords | None = None,
        patience: timedelta = timedelta(seconds=10),
        regions: dict[str, RegionMode] | None = None,
    ) -> ResultProcessor:
        return ResultProcessor(
            store or self.store,
            sequences or self.sequences(),
            clock=self.clock,
            chance=self.chance,
            counts=self.counts,
            features=features or everybody(),
            scheduler=self.scheduler,
            patience=patience,
            regions=regions,
            renewing=False,
        )

    async def close(self) -> None:
        for sequences in self._opened:
            await sequences.close()
        await self.store.close()

    async def pass_time(self, consumer: ResultProcessor, seconds: float) -> None:
        """Let time pass while a consumer looks at what is due."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < end:
            self.clock.advance(min(STEP, end - self.clock.now()))
            await consumer.backlog.look_at_due()
            await consumer.backlog.scheduled()

    async def applied(self, key: str = "s1") -> list[int]:
        """Give the minutes whose results were applied, in the order in which they were."""
        return [
            line.scheduled_check_time_ms // MINUTE
            for line in await self.store.checks(key)
            if line.guid
        ]

    async def missed(self, key: str = "s1") -> list[int]:
        """Give the minutes whose misses stand."""
        return [
            line.scheduled_check_time_ms // MINUTE
            for line in await self.store.checks(key)
            if not line.guid and not line.retracted
        ]

    def counted(self, metric: Metric) -> float:
        return self.counts.get(metric)

    def size(self) -> float:
        """Give what the document calls the size of the backlog."""
        return self.counted(metrics.ADDED) - self.counted(metrics.REMOVED)


async def send(consumer: ResultProcessor, *minutes: int) -> list[Handled]:
    """Send results one after another."""
    handled = [await consumer.handle_result(check(minute)) for minute in minutes]
    await consumer.backlog.scheduled()
    return handled
