"""Many results at the pace of their intervals through Arroyo's pool."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from confluent_kafka import Producer

from headway.engines import open_sequences
from headway.systems.uptime.kafka_feed import produce
from headway.systems.uptime.opening import FAMILY, open_store
from headway.systems.uptime.results import CheckResult, CheckStatus, encode
from headway.systems.uptime.settings import UptimeSettings
from headway.testing.servers import Redis
from tests.chaos.slow_consumer import BATCHES, INTERVAL_SECONDS
from tests.systems.uptime.crowds import MINUTE, keys, subscribe

REPOSITORY = Path(__file__).parents[2]
CELERY = [sys.executable, "-m", "celery", "-A", "headway.systems.uptime.tasks", "worker"]
CELERY += ["--concurrency", "2", "--without-gossip", "--without-mingle"]
# This cluster keeps five megabytes of a partition, and a consumer that was killed is far behind.
PACKED = {"compression.type": "gzip", "linger.ms": 50}
WATCH = """
create table proof_times (id integer primary key, at real not null);
create trigger proof_times after insert on uptime_checks begin
    insert into proof_times values (new.id, (julianday('now') - 2440587.5) * 86400);
end
"""

_NAP = 0.01
"""Seconds: shorter ones would cost more than they give."""

Place = tuple[str, int]
"""A key and a minute."""
Victim = Literal["worker", "consumer", "celery", "redis"]


class DurableRedis(Redis):
    """Writes every answered command to the disk first."""

    def _command(self) -> list[str]:
        return ["always" if word == "everysec" else word for word in super()._command()]


@dataclass(frozen=True)
class Load:
    """How much, and how fast."""

    subscriptions: int
    minutes: int
    time_scale: float
    """Of the schedule and of the interval."""
    processes: int = 6
    batches_in_interval: int = 3
    """Half as many as processes: Arroyo gives out no more batches before the oldest is done."""

    @property
    def interval(self) -> float:
        return INTERVAL_SECONDS * self.time_scale

    @property
    def missing(self) -> frozenset[Place]:
        """One result in a thousand never comes; of each key the first and the last ones do."""
        chance = random.Random(6)
        wanted = self.subscriptions * self.minutes // 1000
        places = [
            (name, minute)
            for name in keys(self.subscriptions)
            for minute in range(3, self.minutes - 1)
        ]
        return frozenset(chance.sample(places, wanted))

    @property
    def results(self) -> int:
        return self.subscriptions * self.minutes - len(self.missing)

    @property
    def least_disorder(self) -> int:
        """How many results have to come out of order for this to be a proof."""
        return self.subscriptions * self.minutes // 200

    def paced(self, stopped: threading.Event) -> Iterator[bytes]:
        """Give all but the first minute, evenly over every interval, unless it is stopped."""
        missing, names = self.missing, keys(self.subscriptions)
        began, pause = time.monotonic(), self.interval / len(names)
        for number in range(len(names) * (self.minutes - 1)):
            minute, name = number // len(names) + 2, names[number % len(names)]
            early = began + number * pause - time.monotonic()
            if (early > _NAP and stopped.wait(early)) or stopped.is_set():
                return
            if (name, minute) not in missing:
                yield raw_of(name, minute)


FULL = Load(subscriptions=2_000, minutes=100, time_scale=0.05)
REDUCED = Load(subscriptions=250, minutes=20, time_scale=0.02)


def raw_of(name: str, minute: int) -> bytes:
    return encode(CheckResult(f"{name}-{minute}", name, CheckStatus.SUCCESS, minute * MINUTE))


@contextlib.contextmanager
def kafka_cluster() -> Iterator[str]:
    """Run a cluster of librdkafka's own: Kafka's protocol over TCP, four partitions a topic."""
    owner = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(owner.list_topics(timeout=10).brokers.values()))
    yield f"{broker.host}:{broker.port}"
    owner.flush(1)


@dataclass
class Crew:
    """The consumer and, if wanted, a worker of Celery: whoever ends is replaced."""

    settings: UptimeSettings
    load: Load
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: Counter[str] = field(default_factory=Counter)
    replaced: Counter[str] = field(default_factory=Counter)
    """Of those that nobody killed."""
    _all: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def commands(self) -> dict[str, list[str]]:
        load = self.load
        seconds = load.interval / load.batches_in_interval
        batch = 2 * load.subscriptions // load.batches_in_interval
        consumer = [sys.executable, "-m", "tests.chaos.slow_consumer", str(load.processes)]
        consumer += [str(batch), str(seconds)]
        return {"consumer": consumer} | ({"celery": CELERY} if self.settings.celery_broker else {})

    def be_there(self) -> None:
        """Start whoever is not there."""
        for name, command in self.commands().items():
            process = self.running.get(name)
            if process is not None and process.poll() is None:
                continue
            if process is not None and process.returncode != -signal.SIGKILL:
                self.replaced[name] += 1
            with (self.folder / f"{name}.log").open("ab") as log:
                self.running[name] = subprocess.Popen(
                    command,
                    env={**os.environ, **self.settings.in_words()},
                    cwd=REPOSITORY,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._all.append(self.running[name])

    async def stay(self) -> None:
        while True:
            self.be_there()
            await asyncio.sleep(0.2)

    def kill(self, victim: Victim, redis: Redis | None, chance: random.Random) -> bool:
        """Kill somebody with SIGKILL, and say whether anybody was there."""
        match victim:
            case "worker":  # one process of the pool; the consumer has to find out
                alive = self._workers()
                if not alive:
                    return False
                os.kill(chance.choice(alive), signal.SIGKILL)
            case "consumer":  # its pool goes on with what it is at, and ends by itself
                self.running["consumer"].kill()
                self.running["consumer"].wait()
            case "celery":
                os.killpg(self.running["celery"].pid, signal.SIGKILL)
                self.running["celery"].wait()
            case "redis":
                assert redis is not None
                redis.kill()
                time.sleep(0.5)
                redis.start()
        self.killed[victim] += 1
        return True

    def go_home(self) -> None:
        """End everybody in order; and those too who were left behind by the killed."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        for process in self._all:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _workers(self) -> list[int]:
        """Give the processes of the present pool that had a batch already."""
        seen = self.folder / BATCHES
        lines = seen.read_text().splitlines()[-4 * self.load.processes :]
        pids = sorted({int(json.loads(line)["pid"]) for line in lines})
        # A number may belong to somebody else by now.
        return [pid for pid in pids if _session_of(pid) == self.running["consumer"].pid]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


async def run(
    load: Load,
    settings: UptimeSettings,
    folder: Path,
    *,
    hardship: Callable[[Crew], Awaitable[None]] | None = None,
    patience: float = 120,
) -> Crew:
    """Feed everything at its pace; returns when nothing is held and every result is there."""
    await subscribe(settings, keys(load.subscriptions))
    with contextlib.closing(sqlite3.connect(folder / "uptime.db")) as connection:
        connection.executescript(WATCH)
    crew = Crew(settings, load, folder)
    store = open_store(settings)

    async def until(results: int) -> None:
        async with asyncio.timeout(patience):
            while (await store.totals()).results < results:  # noqa: ASYNC110 (others do it)
                await asyncio.sleep(0.2)

    stopped = threading.Event()
    staying = asyncio.create_task(crew.stay())
    try:
        first = [raw_of(name, 1) for name in keys(load.subscriptions)]
        await asyncio.to_thread(produce, settings, first, _quiet)
        await until(len(first))  # everybody has started: from here on time counts
        feeding = asyncio.create_task(
            asyncio.to_thread(produce, settings, load.paced(stopped), _quiet, PACKED)
        )
        if hardship is not None:
            await hardship(crew)
        await feeding
        await until(load.results)
        await _until_none_is_held(settings, patience)
    finally:
        stopped.set()
        staying.cancel()
        await asyncio.to_thread(crew.go_home)  # whoever ends stores what it counted last
        await store.close()
    return crew


def _quiet(_number: int) -> None:
    pass


async def _until_none_is_held(settings: UptimeSettings, patience: float) -> None:
    sequences = open_sequences(settings.sequences_url, family=FAMILY, settings=settings.order())
    try:
        async with asyncio.timeout(patience):
            while (await sequences.waiting(0))[0]:  # noqa: ASYNC110 (other processes do it)
                await asyncio.sleep(0.1)
    finally:
        await sequences.close()
