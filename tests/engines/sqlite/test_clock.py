"""The time of a file: what it does when the wall clock is set, is wrong, or the machine reboots."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headway.clock import SystemChance, SystemClock
from headway.testing.conformance.examples import ORDERS, QUEUES, publish, unit
from headway.testing.engines import SqliteEngine, sqlite_engine, sqlite_sequences
from headway.testing.ports import Completion, Later, Offer

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2026, 11, 18, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
STEPS = [365 * DAY, -365 * DAY]
RETENTION = 7 * DAY


class Machine:
    """The clocks of a machine. Time passes when a test says so."""

    def __init__(self, path: Path, *, boot: str = "first", wall: datetime = START) -> None:
        self.path = path
        self.wall = wall
        self.steady = timedelta(days=3)
        self.boot = boot

    def run(self, delay: timedelta) -> None:
        self.wall += delay
        self.steady += delay

    def reboot(self, off: timedelta, boot: str = "second", wall: datetime | None = None) -> None:
        """Switch the machine off for a while; with a `wall` it comes up with the wrong time."""
        self.wall = wall or self.wall + off
        self.steady = timedelta(seconds=20)
        self.boot = boot

    def clock(self) -> SystemClock:
        """Give the clock of a process that starts now."""
        return SystemClock(
            wall=lambda: (self.wall - EPOCH) / timedelta(seconds=1),
            steady=lambda: self.steady / timedelta(seconds=1),
            boot=lambda: self.boot,
        )

    @asynccontextmanager
    async def process(self) -> AsyncIterator[tuple[SqliteEngine, SystemClock]]:
        """Start a process that works on the file."""
        clock = self.clock()
        engine = sqlite_engine(self.path, clock, SystemChance(), synchronous="off")
        await engine.bus.open(QUEUES)
        try:
            yield engine, clock
        finally:
            await engine.bus.close()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "headway.db")


async def delay(machine: Machine, by: timedelta, name: str = "a") -> None:
    """Have a process delay an event, and end."""
    async with machine.process() as (engine, clock):
        await publish(engine, name)
        (delivery,) = await engine.bus.take([ORDERS.name], 1)
        await engine.bus.settle([(delivery, Later(clock.now() + by, delivery.travel))])


async def finish_one(machine: Machine) -> None:
    """Have a process finish an event, and end."""
    async with machine.process() as (engine, clock):
        await publish(engine, "a")
        (delivery,) = await engine.bus.take([ORDERS.name], 1)
        await engine.finisher.finish([unit(delivery, clock.now())])


async def is_due(machine: Machine) -> bool:
    """Ask a new process; it hands back what it took."""
    async with machine.process() as (engine, _):
        return bool(await engine.bus.take([ORDERS.name], 1))


async def test_the_time_that_a_machine_was_off_counts(machine: Machine) -> None:
    await delay(machine, HOUR)
    machine.run(10 * MINUTE)
    machine.reboot(30 * MINUTE)
    assert not await is_due(machine)
    machine.run(19 * MINUTE)
    assert not await is_due(machine)
    machine.run(2 * MINUTE)
    assert await is_due(machine)


@pytest.mark.parametrize("boot", ["second", ""])
async def test_a_clock_that_is_wrong_at_boot_keeps_nothing_longer_than_its_delay(
    machine: Machine, boot: str
) -> None:
    if not boot:
        machine.boot = boot
    await delay(machine, HOUR)
    machine.run(10 * MINUTE)
    machine.reboot(8 * HOUR, boot, EPOCH)
    assert not await is_due(machine)
    machine.run(30 * MINUTE)
    machine.wall = START + 9 * HOUR  # the time server answers
    assert not await is_due(machine)
    machine.run(31 * MINUTE)
    assert await is_due(machine)


@pytest.mark.parametrize("step", STEPS, ids=str)
async def test_the_age_of_an_event_is_what_passed_in_the_time_of_the_wall(
    machine: Machine, step: timedelta
) -> None:
    await delay(machine, HOUR)
    machine.run(30 * MINUTE)
    machine.wall += step
    machine.run(31 * MINUTE)
    async with machine.process() as (engine, clock):
        (queue,) = [q for q in (await engine.places.depths()).queues if q.queue == ORDERS.name]
        assert (queue.ready, queue.oldest) == (1, clock.now() - MINUTE)
        (delivery,) = await engine.bus.take([ORDERS.name], 1)
        assert delivery.travel.first_seen is not None
        assert clock.now() - delivery.travel.first_seen == HOUR + MINUTE


async def test_a_clock_that_is_ahead_at_boot_forgets_nothing_too_soon(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    await finish_one(machine)
    for boot in range(2):
        machine.run(MINUTE)
        right = machine.wall + MINUTE
        machine.reboot(MINUTE, f"{boot}", right + 365 * DAY)
        async with machine.process() as (engine, clock):
            assert await engine.records.forget(clock.now() - RETENTION, 10) == 0
        machine.wall = right  # the time server answers
        machine.run(2 * MINUTE)
        async with machine.process() as (engine, clock):
            await publish(engine, f"mark {boot}")
            assert await engine.records.forget(clock.now() - RETENTION, 10) == 0
    assert sum("365 days" in line for line in caplog.messages) == 2
    machine.run(RETENTION)
    async with machine.process() as (engine, clock):
        assert await engine.records.forget(clock.now() - RETENTION, 10) == 1


@pytest.mark.parametrize("step", STEPS, ids=str)
async def test_a_gap_is_waited_for_as_long_as_it_should_be(
    machine: Machine, step: timedelta
) -> None:
    first = sqlite_sequences(machine.path, machine.clock(), synchronous="off")
    await first.offer([Offer("k", 1, b"", "a")])
    await first.complete([Completion("k", 1, "a")])
    (held,) = await first.offer([Offer("k", 3, b"", "b")])
    assert held.outcome == "held"
    await first.close()
    machine.wall += step
    clock = machine.clock()
    second = sqlite_sequences(machine.path, clock, synchronous="off")
    machine.run(timedelta(seconds=9))
    assert list(await second.due(9)) == []
    reading = await second.read("k")
    assert reading.now == clock.now()
    assert reading.now - reading.state.held[0].since == timedelta(seconds=9)
    machine.run(timedelta(seconds=2))
    assert list(await second.due(9)) == ["k"]
    await second.close()
