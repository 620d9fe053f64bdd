"""Consumers in real time with a real worker of Celery, or alone on SQLite.

Intervals and waits are those of the document, all multiplied by one factor.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from headway.errors import SequencesAwayError
from headway.metrics import Metric
from headway.systems.uptime import metrics
from headway.systems.uptime.hosting import look_every, scheduler_in
from headway.systems.uptime.metrics import Tally
from headway.systems.uptime.monitors import Detector, Subscription
from headway.systems.uptime.opening import open_processor, open_store
from headway.systems.uptime.processor import Handled, ResultProcessor
from headway.systems.uptime.results import CheckResult, CheckStatus, encode
from headway.systems.uptime.settings import UptimeSettings
from headway.testing.servers import Redis, wait_until
from tests.commands import app

FOUR = datetime(2026, 1, 5, 4, 0, tzinfo=UTC)

DOCUMENT = {
    "added": metrics.ADDED,
    "removed": metrics.REMOVED,
    "task_scheduled": metrics.TASK_SCHEDULED,
    "cleared": metrics.CLEARED,
    "timeout": metrics.TIMEOUT,
    "circuit_breaker": metrics.CIRCUIT_BREAKER,
}
"""Its counters; how often was looked again depends on how busy the machine is."""


@contextmanager
def celery_worker(settings: UptimeSettings, log: Path) -> Iterator[None]:
    """Run a real worker, as the documentation says."""
    command = [sys.executable, "-m", "celery", "-A", "headway.systems.uptime.tasks", "worker"]
    command += ["--concurrency", "2", "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    with log.open("wb") as output:
        worker = subprocess.Popen(
            command,
            env={**os.environ, **settings.in_words()},
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            start_new_session=True,
        )
        try:
            ready = wait_until(lambda: b"ready." in log.read_bytes(), timedelta(seconds=60))
            assert ready, log.read_text()
            yield
        finally:
            worker.terminate()
            try:
                worker.wait(30)
            finally:
                with suppress(ProcessLookupError):  # its children, if it left any
                    os.killpg(worker.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Stage:
    """Where consumers run: their settings, the server that can be killed, what Celery said."""

    settings: UptimeSettings
    redis: Redis | None = None
    log: Path | None = None
    interval: timedelta = timedelta(minutes=1)
    """Of the document's time, as all that is said of minutes."""

    @property
    def interval_ms(self) -> int:
        return round(self.interval.total_seconds() * 1000 * self.settings.time_scale)

    def at(self, minute: int) -> int:
        """Give the scheduled time of a check, so many intervals after four o'clock."""
        return round(FOUR.timestamp() * 1000) + minute * self.interval_ms

    def tasks_done(self) -> int:
        return self.said(" succeeded in ")

    def said(self, words: str) -> int:
        """Say how often the worker of Celery said so."""
        return 0 if self.log is None else self.log.read_text().count(words)


@dataclass
class Door:
    """The front door for one subscription, and what can be seen behind it."""

    stage: Stage
    key: str
    tally: Tally = field(default_factory=Tally)
    """Of the consumers at the door; the worker of Celery counts into the store."""

    async def open(self, *more: str) -> None:
        self._store = open_store(self.stage.settings)
        self._opened: list[ResultProcessor] = []
        self._looking: list[asyncio.Task[None]] = []
        await self._store.prepare()
        for key in (self.key, *more):
            await self.subscribe(key)
        self._before = await self._store.counts()

    async def subscribe(self, key: str) -> None:
        seconds = self.stage.interval_ms // 1000
        subscription = Subscription(key, "", seconds, self.stage.at(0))
        await self._store.save([subscription], {key: Detector(f"d-{key}", "acme")})

    async def consumer(self, *, looks: bool = True) -> ResultProcessor:
        """Open another worker. Without Celery it looks at what waits by itself."""
        settings = self.stage.settings
        scheduler = scheduler_in(settings)
        opened = await open_processor(settings, self.tally, scheduler=scheduler)
        self._opened.append(opened)
        if looks and scheduler is None:
            self._looking.append(asyncio.create_task(opened.backlog.run(look_every(settings))))
        return opened

    async def close(self) -> None:
        for opened in self._opened:
            opened.backlog.stop()
        await asyncio.gather(*self._looking)
        for opened in self._opened:
            await opened.close()
        await self._store.close()

    def check(self, minute: int, key: str | None = None) -> bytes:
        name = key or self.key
        at = self.stage.at(minute)
        return encode(CheckResult(f"{name}-{minute}", name, CheckStatus.SUCCESS, at))

    async def send(self, consumer: ResultProcessor, *minutes: int) -> list[Handled]:
        """Send results one after another."""
        handled = [await consumer.handle_result(self.check(minute)) for minute in minutes]
        await consumer.backlog.scheduled()
        return handled

    async def applied(self, key: str | None = None) -> list[int]:
        """Give the minutes after four whose results were applied, in the order of applying."""
        lines = await self._store.checks(key or self.key)
        return [self._minute(line.scheduled_check_time_ms) for line in lines if line.guid]

    async def missed(self, key: str | None = None) -> list[int]:
        """Give the minutes after four whose misses stand."""
        lines = await self._store.checks(key or self.key)
        return [
            self._minute(line.scheduled_check_time_ms)
            for line in lines
            if not line.guid and not line.retracted
        ]

    async def counted(self, metric: Metric) -> float:
        return self.tally.get(metric) + await self._elsewhere(metric.name)

    async def has_counted(self, **expected: int) -> None:
        """Wait until the document's counters of all processes stand so; those not named at 0."""

        async def counts() -> dict[str, float]:
            return {name: await self.counted(metric) for name, metric in DOCUMENT.items()}

        await until(counts, {name: expected.get(name, 0) for name in DOCUMENT})

    async def made_up(self) -> float:
        """Give the sum of the histogram of missing checks."""
        name = f"{metrics.MISSING.name}_sum"
        here = self.tally.taken()
        self.tally.give_back(here)
        return here.get(name, 0) + await self._elsewhere(name)

    async def explained(self) -> Mapping[str, Any]:
        """Give what `headway order explain` says of the subscription."""
        words = ["order", "explain", self.key, "--name", "uptime", "--json"]
        done = await self._headway(*words)
        assert done.exit_code == 0, done.output
        (said,) = json.loads(done.stdout)
        assert isinstance(said, dict)
        return {**said, "held": [self._minute(position) for position in said["held"]]}

    async def holders(self) -> list[str]:
        """Give the keys of this test that `headway order status` shows."""
        done = await self._headway(
            "order", "status", "--name", "uptime", "--limit", "1000", "--json"
        )
        keys = [str(each["key"]) for each in json.loads(done.stdout)]
        return [key for key in keys if key.startswith(self.key)]

    async def is_back(self, consumer: ResultProcessor) -> bool:
        """Say whether the engine of sequences answers a consumer again."""
        try:
            await consumer.backlog.look_at_due()
        except SequencesAwayError:
            return False
        return True

    async def _headway(self, *words: str) -> Any:
        environment = self.stage.settings.in_words()
        return await asyncio.to_thread(CliRunner().invoke, app, words, env=environment)

    async def _elsewhere(self, name: str) -> float:
        return (await self._store.counts()).get(name, 0) - self._before.get(name, 0)

    def _minute(self, position: int) -> int:
        return (position - self.stage.at(0)) // self.stage.interval_ms


async def until(ask: Callable[[], Awaitable[Any]], expected: Any, seconds: float = 30) -> None:
    """Wait for what other processes do."""
    found: Any = None
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (found := await ask()) != expected:  # noqa: ASYNC110 (other processes do it)
                await asyncio.sleep(0.05)
    assert found == expected, f"{found} instead of {expected}"
