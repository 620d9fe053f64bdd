"""Engines on a real RabbitMQ, which come and go like worker processes."""

import asyncio
import socket
import time
from datetime import timedelta
from typing import Any, cast

from headway.adapters.rabbitmq.bus import RabbitBus
from headway.adapters.rabbitmq.connecting import parameters
from headway.adapters.rabbitmq.desk import Desk
from headway.adapters.rabbitmq.topology import EXCHANGE
from headway.clock import SystemChance, SystemClock
from headway.testing.conformance.harness import Capability, EngineHarness
from headway.testing.ports import Engine

LACKS = frozenset(
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
    }
)


async def cut(bus: RabbitBus) -> None:
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


class RabbitBusHarness(EngineHarness):
    """Only a bus: what else an engine has is not asked for by its suite."""

    moment = timedelta(seconds=0.2)
    lacks = LACKS

    def __init__(self, url: str) -> None:
        self.clock = SystemClock()
        self.wall_clock_step = timedelta()
        self.url = url
        self.buses: list[RabbitBus] = []

    async def open_engine(self) -> Engine:
        how = parameters(self.url)
        bus = RabbitBus(
            how,
            self.clock,
            SystemChance(),
            exchange=EXCHANGE,
            desk=Desk(how),
            time_to_come_back=self.moment,
            idle=5 * self.moment,
            pulse=self.moment,
        )
        self.buses.append(bus)
        nothing = cast(Any, None)
        return Engine(
            bus=bus,
            finisher=nothing,
            letters=nothing,
            records=nothing,
            documents=nothing,
            places=nothing,
            unrouted=bus.unrouted,
            history=nothing,
        )

    async def set_clock(self, step: timedelta) -> None:
        """Set the clock of the workers' machine."""
        self.wall_clock_step += step
        ahead = self.wall_clock_step.total_seconds()
        self.clock = SystemClock(wall=lambda: time.time() + ahead)

    async def kill(self, engine: Engine) -> None:
        assert isinstance(engine.bus, RabbitBus)
        await cut(engine.bus)
        await asyncio.sleep(0)

    async def close(self) -> None:
        for bus in self.buses:
            await bus.close()
