"""The bus of the memory engine: one object for each worker of a test."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from headway.adapters.memory.state import Announced, State
from headway.ports.bus import Delivery, Message, Queue, Then
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.unrouted import OnStep


class MemoryBus:
    """Takes from the state under tokens; what it takes is its own until it is settled or gone."""

    atomic_publish = True
    finds_parked = True

    def __init__(self, state: State, clock: Clock, chance: Chance) -> None:
        self._state = state
        self._clock = clock
        self._chance = chance
        self._versions: dict[str, str] = {}
        """What runs here, by queue."""
        self.worker = f"memory-{next(state.names)}"

    async def gone(self, workers: Collection[str]) -> Collection[str]:
        there = {bus.worker for bus in self._state.workers if isinstance(bus, MemoryBus)}
        return {each for each in workers if each.startswith("memory-") and each not in there}

    def owns(self, delivery: Delivery) -> bool:
        return self._state.taken(self, delivery) is not None

    async def open(self, queues: Sequence[Queue], on_routed: OnStep | None = None) -> None:
        routed = self._state.declare(queues, self._clock.now())
        if routed and on_routed is not None:
            on_routed(routed)
        if self not in self._state.gone:
            self._state.workers[self] = None

    async def publish(self, messages: Sequence[Message]) -> Sequence[int]:
        return self._state.publish(messages, self._clock.now())

    async def take(
        self, queues: Sequence[str], limit: int, patience: timedelta = timedelta()
    ) -> Sequence[Delivery]:
        deadline = self._clock.now() + patience
        while True:
            now = self._clock.now()
            taken = self._take_due(queues, limit)
            if taken or now >= deadline:
                return taken
            due = None if self in self._state.gone else self._state.next_due(queues, self._versions)
            await self._change_within(min(deadline, due or deadline) - now)

    def _take_due(self, queues: Sequence[str], limit: int) -> Sequence[Delivery]:
        if self in self._state.gone:
            return ()
        now = self._clock.now()
        self._state.seen(self, queues, now)
        return self._state.take(queues, limit, taker=self, token=self._chance.token, now=now)

    async def _change_within(self, delay: timedelta) -> None:
        over = asyncio.ensure_future(self._clock.wait(delay))
        change = self._state.change()
        try:
            await asyncio.wait({over, change}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            change.cancel()

    async def begin(self, delivery: Delivery) -> bool:
        item = self._state.taken(self, delivery)
        if item is None:
            return False
        item.begins += not item.begun
        item.begun = True
        return True

    async def settle(self, settlements: Sequence[tuple[Delivery, Then]]) -> Sequence[bool]:
        return [self._settled(delivery, then) for delivery, then in settlements]

    def _settled(self, delivery: Delivery, then: Then) -> bool:
        item = self._state.taken(self, delivery)
        if item is None:
            return False
        self._state.settle(item, then)
        return True

    async def resume(self, queue: str) -> int:
        return self._state.resume(queue, self._clock.now())

    async def announce(
        self,
        service: str,  # noqa: ARG002 (a queue belongs to one service)
        version: str,
        queues: Sequence[str],
        grace: timedelta,
    ) -> None:
        self._versions |= dict.fromkeys(queues, version)
        now = self._clock.now()
        for queue in queues:
            self._state.versions[self, queue] = Announced(self, version, queue, grace, now)

    async def live_versions(self, queue: str) -> Collection[str]:
        return self._state.live_versions(queue, self._clock.now())

    async def proven(self) -> datetime | None:
        return self._clock.now()

    async def hand_back_all(self, keep: Sequence[Delivery]) -> None:
        kept = [self._state.taken(self, delivery) for delivery in keep]
        self._state.leave(self, returned=False, keep=[item for item in kept if item is not None])

    async def close(self) -> None:
        self._state.leave(self, returned=False)
