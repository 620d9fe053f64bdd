"""Workers that die with documents in hand: what their leases hold up, and what they do not."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from headway import Lifecycle, Service
from headway.facts import SuspectBegun
from headway.testing.engines import Worker, memory_engine
from headway.testing.trial import Trial
from tests.behaviour.scenes import (
    MINUTE,
    SECOND,
    assert_all_is_accounted_for,
    crash,
    reasons,
    until,
)

LEASE = MINUTE


class Mortal:
    """A port that answers nobody any more once its process is dead."""

    def __init__(self, inner: Any, is_dead: Callable[[], bool]) -> None:
        self._inner = inner
        self._is_dead = is_dead

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any) -> Any:
            if self._is_dead():
                raise ConnectionError("this process is dead")
            return await getattr(self._inner, name)(*args)

        return call


class Scene:
    """A service whose workers die over an event about a leased document, as often as is said."""

    def __init__(self, deadly: int) -> None:
        self.begun: list[datetime] = []
        self._deadly = deadly
        self._is_dead = False
        service = Service("orders", lifecycles=[Lifecycle("orders", lease=LEASE)])
        service.on("OrderPlaced", documents=("orders", "order"))(self._handle)
        self.trial = Trial(service)

    async def _handle(self, _event: Any, work: Any) -> None:
        self.begun.append(self.trial.clock.now())
        work.documents("log").add({"run": len(self.begun)})
        if len(self.begun) <= self._deadly:
            await asyncio.Event().wait()

    async def publish(self) -> None:
        await self.trial.put("orders", {"_id": "a", "status": "pending"})
        await self.trial.publish("OrderPlaced", {"order": "a"})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Worker]:
        """Have a worker running inside the block, as another process."""
        trial, self._is_dead = self.trial, False
        engine = memory_engine(trial.clock, trial.chance, trial.state)
        documents: Any = Mortal(engine.documents, lambda: self._is_dead)
        worker = Worker(
            trial.services,
            replace(engine, documents=documents),
            clock=trial.clock,
            chance=trial.chance,
            observer=trial.facts,
        )
        running = asyncio.create_task(worker.run())
        yield worker
        worker.stop()
        await running

    async def die(self) -> None:
        """Let one worker die over the event."""
        before = len(self.begun)
        async with self.running() as worker:
            await until(self.trial, lambda: len(self.begun) > before, at_most=3 * LEASE)
            self._is_dead = True
            crash(self.trial, worker)

    async def end(self) -> None:
        """Let another worker do what is left."""
        async with self.running():
            await until(self.trial, lambda: not self.trial.state.items, at_most=3 * LEASE)


async def test_a_lease_does_not_keep_a_crash_loop_from_its_end() -> None:
    scene = Scene(deadly=99)
    await scene.publish()
    for _ in range(4):
        await scene.die()
    await scene.end()
    assert len(scene.begun) == 4
    assert await reasons(scene.trial) == ["crash_loop"]
    assert [fact.returns for fact in scene.trial.facts.of(SuspectBegun)] == [2, 3]
    (document,) = await scene.trial.documents("orders")
    assert (document["status"], document["attemptCount"]) == ("failed", 1)
    await assert_all_is_accounted_for(scene.trial)


async def test_the_event_of_a_dead_worker_takes_over_the_lease_of_its_document() -> None:
    scene = Scene(deadly=1)
    await scene.publish()
    await scene.die()
    back = scene.trial.clock.now()
    await scene.end()
    _, second = scene.begun
    assert second - back < SECOND
    assert [each["run"] for each in await scene.trial.documents("log")] == [2]
    (document,) = await scene.trial.documents("orders")
    assert (document["status"], document["attemptCount"]) == ("processed", 1)
