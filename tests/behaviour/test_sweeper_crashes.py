"""A sweeper killed before and after every durable step: each attempt is made once, and counted."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headway import RetryPolicy, Service
from headway.adapters.memory.bus import MemoryBus
from headway.retrying import TRANSIENT
from headway.runtime.sweeper import Sweeper
from headway.settings import SweepSettings
from headway.testing.engines import Worker
from headway.testing.ports import Engine
from tests.behaviour.sweeps import HOUR, MINUTE, Yard, in_memory, sweeping_of
from tests.chaos.simulation.state import WatchedState
from tests.engines.pairs.doom import Doom, KilledError

STEPS = {
    "claim",
    "published",
    "give_back",
    "give_up",
    "publish",
    "hold",
    "let_go",
    "add",
}
"""Calls that change something."""
MAX_ATTEMPTS = 3


class Doomed:
    """A port of a process that will be killed."""

    def __init__(self, inner: Any, doom: Doom) -> None:
        self._inner = inner
        self._doom = doom

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in STEPS:
            return method

        async def step(*given: Any) -> Any:
            return await self._doom.step(name, lambda: method(*given))

        return step


def doomed(engine: Engine, doom: Doom) -> Engine:
    inner = sweeping_of(engine)
    candidates: Any = Doomed(inner.candidates, doom)
    leases: Any = Doomed(inner.leases, doom)
    totals: Any = Doomed(inner.totals, doom)
    bus: Any = Doomed(engine.bus, doom)
    sweeping = replace(inner, candidates=candidates, leases=leases, totals=totals)
    return replace(engine, bus=bus, sweeping=sweeping)


class Town:
    """Documents of every kind, a service for them, and its effects, which nothing makes unique."""

    def __init__(self, *, fails: bool = False) -> None:
        # As brokers do: what is published twice is there twice.
        self.state = WatchedState(recognises=False)
        self.yard = Yard(in_memory(self.state))
        self.runs: Counter[str] = Counter()
        once = RetryPolicy(max_attempts=1, backoff=TRANSIENT.backoff)
        self.service = Service("chunking", transient=once)

        @self.service.on("JSONParsed", documents=("messages", "ids"), dedup="ids")
        async def chunk(event: Any, work: Any) -> None:
            (one,) = event.data["ids"]
            self.runs[one] += 1
            if fails:
                raise RuntimeError("no use")
            work.documents("effects").add({"of": one})

    async def fill(self) -> None:
        last = self.yard.ago(HOUR)
        await self.yard.put(
            "messages",
            {"_id": "lost", "status": "pending", "attemptCount": 0},
            {"_id": "failed", "status": "failed", "attemptCount": 1, "lastAttemptTime": last},
            {"_id": "spent", "status": "failed", "attemptCount": 3, "lastAttemptTime": last},
        )

    def sweeper(self, engine: Engine) -> Sweeper:
        yard = self.yard
        return Sweeper(
            [self.service],
            engine,
            clock=yard.clock,
            chance=yard.chance,
            observer=yard.facts,
            settings=SweepSettings(cap=1),  # so that two runs are needed, and caps are kept
        )

    async def sweep(self) -> None:
        """Sweep in a new process, until nothing is left to be sent."""
        for _ in range(3):
            self.yard.clock.advance(2 * MINUTE)
            await self.sweeper(self.yard.new_engine()).sweep_once()

    async def work(self) -> None:
        """Let a worker do what is there."""
        worker = Worker(
            [self.service],
            self.yard.new_engine(),
            clock=self.yard.clock,
            chance=self.yard.chance,
            observer=self.yard.facts,
        )
        running = asyncio.create_task(worker.run())
        while any(item.queue == "chunking.json.parsed" for item in self.state.items.values()):
            await self.yard.clock.wait(timedelta(seconds=1))
        worker.stop()
        await running

    async def documents(self) -> dict[str, Any]:
        return {each["_id"]: each for each in await self.yard.all("messages")}

    async def effects(self) -> Counter[str]:
        return Counter(each["of"] for each in await self.yard.all("effects"))


After = Callable[[Town], Awaitable[None]]


async def every_death(make: Callable[[], Town], then: After) -> list[str]:
    """Kill a sweeper at every point of two runs, each in a world of its own; give its steps."""
    at = 0
    while True:
        at += 1
        town, doom = make(), Doom()
        await town.fill()
        engine = town.yard.new_engine()
        assert isinstance(engine.bus, MemoryBus)
        sweeper = town.sweeper(doomed(engine, doom))
        doom.at = at
        try:
            for _ in range(2):
                await sweeper.sweep_once()
        except KilledError:
            killed = True
            town.state.crash(engine.bus)
        else:
            killed = False
        await then(town)
        await town.yard.close()
        if not killed:
            return doom.steps


async def swept_then_worked(town: Town) -> None:
    await town.sweep()
    await town.work()


async def worked_then_swept(town: Town) -> None:
    """What the dead one had sent is done before anybody sweeps again."""
    await town.work()
    await town.sweep()
    await town.work()


@pytest.mark.parametrize("order", [swept_then_worked, worked_then_swept])
async def test_killed_at_any_point_every_document_is_done_once(order: After) -> None:
    async def then(town: Town) -> None:
        await order(town)
        found = await town.documents()
        assert {one: each["status"] for one, each in found.items()} == {
            "lost": "processed",
            "failed": "processed",
            "spent": "failed_max_retries",
        }
        assert {one: each["attemptCount"] for one, each in found.items()} == {
            "lost": 1,
            "failed": 2,
            "spent": 3,
        }
        assert await town.effects() == {"lost": 1, "failed": 1}
        assert {each.get("claimToken") for each in found.values()} == {None}
        assert await town.yard.engine.places.astray(10) == (0, [])

    steps = await every_death(Town, then)
    assert {"claim", "publish", "published", "give_up", "hold", "add"} <= set(steps)
    for first in (index for index, step in enumerate(steps) if step == "claim"):
        assert steps[first : first + 3] == ["claim", "publish", "published"]


async def test_killed_at_any_point_no_document_gets_more_attempts_than_it_may() -> None:
    async def then(town: Town) -> None:
        for _ in range(2 * MAX_ATTEMPTS):
            await town.work()
            town.yard.clock.advance(2 * HOUR)
            await town.sweep()
        found = await town.documents()
        assert {each["status"] for each in found.values()} == {"failed_max_retries"}
        assert {each["attemptCount"] for each in found.values()} == {MAX_ATTEMPTS}
        assert town.runs == {"lost": 3, "failed": 2}

    await every_death(lambda: Town(fails=True), then)


async def test_killed_while_it_gives_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bus refuses, and the sweeper dies before or after it could say so."""

    async def refuse(*_given: Any) -> Any:
        raise TypeError("it does not fit")

    async def then(town: Town) -> None:
        monkeypatch.undo()
        await town.sweep()
        await town.work()
        found = await town.documents()
        assert (found["lost"]["attemptCount"], found["failed"]["attemptCount"]) == (1, 2)
        assert await town.effects() == {"lost": 1, "failed": 1}

    def make() -> Town:
        town = Town()
        real = town.state.publish

        def publish(messages: Any, now: Any) -> Any:
            if any(message.event_type == "JSONParsed" for message in messages):
                raise TypeError("it does not fit")
            return real(messages, now)

        monkeypatch.setattr(WatchedState, "publish", lambda _, m, now: publish(m, now))
        return town

    steps = await every_death(make, then)
    assert "give_back" in steps
    assert "publish" not in steps
