"""The same results through the real consumer, twice: without an order, and with it.

The consumer, its store and the sequences are the real ones, on SQLite files of their own. Only the
time is virtual, and the workers are: each batch is given to the consumer when a worker of the pool
would be done with it.
"""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from headway.clock import CLOCK
from headway.engines import open_sequences
from headway.systems.uptime.demo.journal import Journal, JournalWatcher
from headway.systems.uptime.demo.measured import Measured, measure
from headway.systems.uptime.demo.pool import Batch, Progress, batches
from headway.systems.uptime.demo.scenario import Arrival, Scenario, Traffic, traffic
from headway.systems.uptime.effects import Change, Effect, Outcome
from headway.systems.uptime.metrics import Tally
from headway.systems.uptime.monitors import Detector, Subscription
from headway.systems.uptime.opening import FAMILY, SourceProgress
from headway.systems.uptime.processor import ResultProcessor
from headway.systems.uptime.results import CheckResult, CheckStatus, encode
from headway.systems.uptime.rollout import Features, everybody
from headway.systems.uptime.sqlite_store import SqliteStore
from headway.testing import VirtualClock
from headway.testing.chance import Seeded

BEGIN = datetime(2026, 1, 5, 4, 0, tzinfo=UTC)
PLAIN, ORDERED = "plain", "in order"
_BEGIN_MS = int(BEGIN.timestamp() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """Both runs of a scenario."""

    plain: Measured
    ordered: Measured


def play(
    scenario: Scenario, *, on_way: Callable[[str], object], on_results: Callable[[int], object]
) -> Played:
    """Run a scenario both ways. `on_results` is told how many results more were processed."""
    chance = Seeded(scenario.seed)
    made = traffic(scenario, chance)
    done = batches(scenario, made.arrivals, chance)
    ways = {}
    with tempfile.TemporaryDirectory(prefix="headway-demo-") as folder:
        for way, features in ((PLAIN, Features()), (ORDERED, everybody())):
            on_way(way)
            file = Path(folder) / f"{way.replace(' ', '-')}.db"
            run = _Run(scenario, made, features, file)
            ways[way] = asyncio.run(run.through(way, done, on_results))
    return Played(plain=ways[PLAIN], ordered=ways[ORDERED])


class NotedStore(SqliteStore):
    """The store, which also writes down what was done to it, and when."""

    def __init__(self, path: Path, journal: Journal) -> None:
        # Nobody needs this file after a power cut.
        super().__init__(path, synchronous="off")
        self._journal = journal

    async def apply(self, effects: Sequence[Effect]) -> Sequence[Change]:
        changes = await super().apply(effects)
        for effect, change in zip(effects, changes, strict=True):
            key, at = effect.result.subscription_id, effect.result.scheduled_check_time_ms
            for missed in change.misses:
                self._journal.miss(key, missed)
            if change.outcome is Outcome.APPLIED:
                self._journal.apply(key, at)
            elif change.outcome is Outcome.RETRACTED:
                self._journal.retract(key, at)
        return changes


class _Run:
    def __init__(self, scenario: Scenario, made: Traffic, features: Features, file: Path) -> None:
        self._scenario = scenario
        self._traffic = made
        self._journal = Journal()
        self._clock = VirtualClock(BEGIN)
        self._topic = Progress(made.arrivals)
        self._progress = SourceProgress()
        self._next_look = 0
        self._store = NotedStore(file, self._journal)
        url = f"sqlite:///{quote(str(file))}?synchronous=off"
        self._consumer = ResultProcessor(
            self._store,
            open_sequences(url, family=FAMILY, clock=self._clock),
            clock=self._clock,
            chance=Seeded(scenario.seed),
            counts=Tally(),
            features=features,
            watcher=JournalWatcher(self._journal, scenario.interval * 1000),
            progress=self._progress,
            renewing=False,
        )

    async def through(
        self, way: str, done: Sequence[Batch], on_results: Callable[[int], object]
    ) -> Measured:
        began, until = CLOCK.now(), self._scenario.seconds
        try:
            await self._prepare()
            for batch in done:
                await self._look_until(batch.done)
                self._move_to(batch.done)
                self._topic.take(batch)
                raws = [encode(_result(arrival)) for arrival in batch.arrivals]
                await self._consumer.handle_results(raws, self._caught_up())
                on_results(len(raws))
            await self._look_until(until)
        finally:
            await self._consumer.close()
        return measure(
            way,
            self._journal,
            came={(_key(a.subscription), _ms(a.scheduled)): a.at for a in self._traffic.arrivals},
            missing=frozenset((_key(of), _ms(at)) for of, at in self._traffic.missing),
            still=[(begins, begins + lasts) for begins, lasts in self._scenario.backlogs],
            until=float(until),
            seconds=(CLOCK.now() - began).total_seconds(),
        )

    async def _prepare(self) -> None:
        await self._store.prepare()
        keys = [_key(number) for number in range(self._scenario.subscriptions)]
        interval = self._scenario.interval
        await self._store.save(
            [Subscription(key, f"https://{key}.example", interval, _BEGIN_MS) for key in keys],
            {key: Detector(key, organization=f"organization-{key[-1]}") for key in keys},
        )

    async def _look_until(self, until: float) -> None:
        """Do what the workers do all the time: look once a second at what waits for too long."""
        while self._next_look <= until:
            if self._journal.holds_any and not self._scenario.stands_still(self._next_look):
                self._move_to(self._next_look)
                self._progress.caught_up = self._caught_up()
                await self._consumer.backlog.look_at_due()
            self._next_look += 1

    def _move_to(self, now: float) -> None:
        self._clock.advance(BEGIN + timedelta(seconds=now) - self._clock.now())
        self._journal.now = now

    def _caught_up(self) -> datetime | None:
        reached = self._topic.caught_up(self._journal.now)
        return None if reached is None else BEGIN + timedelta(seconds=reached)


def _result(arrival: Arrival) -> CheckResult:
    key, scheduled = _key(arrival.subscription), _ms(arrival.scheduled)
    return CheckResult(
        f"{key}-{arrival.number}", key, CheckStatus.SUCCESS, scheduled, _ms(arrival.at)
    )


def _key(subscription: int) -> str:
    return f"site-{subscription:04}"


def _ms(seconds: float) -> int:
    return _BEGIN_MS + round(seconds * 1000)
