"""Engines on a real RabbitMQ without a store: bus, letters and places."""

from datetime import timedelta

from headway.clock import SystemChance, SystemClock
from headway.testing.conformance.harness import Capability, EngineHarness
from headway.testing.engines import RabbitParts, rabbitmq_parts, without_store
from headway.testing.ports import Engine
from tests.engines.rabbitmq.harness import LACKS, cut


class RabbitEngineHarness(EngineHarness):
    moment = timedelta(seconds=0.2)
    lacks = LACKS | {
        Capability.RECORDS,
        Capability.BOOKS,
        Capability.LOOKING,
        Capability.NEWEST_LETTER,
        Capability.OLDEST_EVENT,
        Capability.LEASED,
    }

    def __init__(self, url: str) -> None:
        self.clock = SystemClock()
        self.url = url
        self.parts: list[RabbitParts] = []

    def open_parts(self, *, patient: bool = True, for_worker: bool = False) -> RabbitParts:
        parts = rabbitmq_parts(
            self.url, self.clock, SystemChance(), patient=patient, for_worker=for_worker
        )
        self.parts.append(parts)
        return parts

    async def open_engine(self) -> Engine:
        return without_store(self.open_parts())

    async def kill(self, engine: Engine) -> None:
        (parts,) = (each for each in self.parts if each.bus is engine.bus)
        await cut(parts.bus)

    async def close(self) -> None:
        for parts in self.parts:
            await parts.bus.close()
