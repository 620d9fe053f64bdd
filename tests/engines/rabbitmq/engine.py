"""Engines on a real RabbitMQ without a store, which come and go like worker processes."""

import asyncio
import socket
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from headway.adapters.rabbitmq.bus import RabbitBus
from headway.clock import SystemChance, SystemClock
from headway.operations import FailedQueues, Letter
from headway.testing.conformance.examples import ORDERS, QUEUES, letters_for, operations
from headway.testing.conformance.harness import Capability, EngineHarness
from headway.testing.engines import RabbitParts, rabbitmq_parts, without_store
from headway.testing.ports import Bus, Done, Engine


class RabbitEngineHarness(EngineHarness):
    moment = timedelta(seconds=0.2)
    lacks = frozenset(
        {
            Capability.STRICT_ORDER,
            Capability.OLD_PLACE,
            Capability.FIRST_SEEN,
            Capability.PARKING,
            Capability.ATOMIC_PUBLISH,
            Capability.ONE_COMMIT,
            Capability.ACCEPTED,
            Capability.WORKERS,
            Capability.BY_HAND,
            Capability.RECORDS,
            Capability.BOOKS,
            Capability.LOOKING,
            Capability.NEWEST_LETTER,
            Capability.OLDEST_EVENT,
            Capability.LEASED,
        }
    )

    def __init__(self, url: str) -> None:
        self.clock = SystemClock()
        self.wall_clock_step = timedelta()
        self.url = url
        self.parts: list[RabbitParts] = []

    def open_parts(self, **how: Any) -> RabbitParts:
        """Give the parts of a new process; `how`: as for `rabbitmq_parts`."""
        parts = rabbitmq_parts(self.url, self.clock, SystemChance(), **how)
        self.parts.append(parts)
        return parts

    async def opened(self, **how: Any) -> RabbitParts:
        """Give the parts of a new process that has declared the queues."""
        parts = self.open_parts(**how)
        await parts.bus.open(QUEUES)
        return parts

    async def with_letters(self, number: int) -> tuple[RabbitParts, list[Letter]]:
        """Give such parts, with so many dead letters in the failed queue of ORDERS."""
        parts = await self.opened()
        letters = letters_for([f"operation-{each}" for each in range(number)], self.clock.now())
        await parts.letters.write(ORDERS.failed, letters)
        return parts, letters

    async def open_engine(self) -> Engine:
        return without_store(self.open_parts())

    async def set_clock(self, step: timedelta) -> None:
        """Set the clock of the workers' machine."""
        self.wall_clock_step += step
        ahead = self.wall_clock_step.total_seconds()
        self.clock = SystemClock(wall=lambda: time.time() + ahead)

    async def kill(self, engine: Engine) -> None:
        (parts,) = (each for each in self.parts if each.bus is engine.bus)
        await _cut(parts.bus)

    async def close(self) -> None:
        with pytest.MonkeyPatch.context() as patch:  # those that were killed get no answer
            patch.setattr("headway.adapters.rabbitmq.bus._FAREWELL", 0.5)
            await asyncio.gather(*(parts.bus.close() for parts in self.parts))


class QuickRabbitHarness(RabbitEngineHarness):
    """Its workers are gone, idle or silent after moments, where others have five seconds."""

    def open_parts(self, **how: Any) -> RabbitParts:
        once = self.moment
        quick = partial(RabbitBus, time_to_come_back=once, idle=5 * once, pulse=once)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headway.adapters.rabbitmq.engine.RabbitBus", quick)
            return super().open_parts(**how)


async def exported(parts: RabbitParts, queue: str = ORDERS.failed) -> list[Letter]:
    """Give all dead letters of a queue, as an operator's export does."""
    queues = FailedQueues(without_store(parts), SystemClock(), SystemChance())
    return [letter async for letter in queues.export(queue)]


async def drained(bus: Bus, least: int, *queues: str) -> list[str]:
    """Take and settle at least so many events, and all that follow; give the operations."""
    found: list[str] = []
    async with asyncio.timeout(60):
        while True:
            taken = await bus.take(queues or [ORDERS.name], 1_000, timedelta(seconds=1))
            found += operations(taken)
            await bus.settle([(each, Done()) for each in taken])
            if not taken and len(found) >= least:
                return found


async def _cut(bus: RabbitBus) -> None:
    """Let the connections of a bus end as those of a process do that dies, and stay so."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    if bus._versions.using is not None:
        bus._versions.using.cancel()

    def abort() -> None:
        for link in (bus._taker.consumers.link, bus._sender._link):
            connection = link._connection
            link._closing = lambda: None
            if connection is not None and connection._transport is not None:
                connection._transport._sock.shutdown(socket.SHUT_RDWR)
        loop.call_soon_threadsafe(done.set)

    bus._io.start()
    bus._io.call(abort)
    await done.wait()
    await asyncio.sleep(0)
