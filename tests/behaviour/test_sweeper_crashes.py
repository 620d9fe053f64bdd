"""A sweeper killed before and after every durable step: each attempt is made once, and counted."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headway import RetryPolicy, Service
from headway.retrying import TRANSIENT
from headway.testing.ports import Engine
from tests.behaviour.sweeps import CHUNKING, HOUR, MINUTE, Yard, in_memory, sweeping_of, working
from tests.chaos.simulation.state import WatchedState
from tests.engines.pairs.doom import Doom, KilledError

STEPS = {"claim", "published", "give_back", "give_up", "publish", "hold", "let_go", "add"}
"""Calls that change something."""


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
    parts: dict[str, Any] = {
        name: Doomed(getattr(inner, name), doom) for name in ("candidates", "leases", "totals")
    }
    bus: Any = Doomed(engine.bus, doom)
    return replace(engine, bus=bus, sweeping=replace(inner, **parts))


class Town:
    """Documents of every kind, a service for them, and its effects, which nothing makes unique."""

    def __init__(self) -> None:
        # As brokers do: what is published twice is there twice.
        self.state = WatchedState(recognises=False)
        self.yard = Yard(in_memory(self.state))
        once = RetryPolicy(max_attempts=1, backoff=TRANSIENT.backoff)
        self.service = Service("chunking", transient=once)

        @self.service.on("JSONParsed", documents=("messages", "ids"), dedup="ids")
        async def chunk(event: Any, work: Any) -> None:
            work.documents("effects").add({"of": event.data["ids"][0]})

    async def fill(self) -> None:
        failed = {"status": "failed", "lastAttemptTime": self.yard.ago(HOUR)}
        await self.yard.put(
            "messages",
            {"_id": "lost", "status": "pending", "attemptCount": 0},
            {"_id": "failed", "attemptCount": 1, **failed},
            {"_id": "spent", "attemptCount": 3, **failed},
        )

    async def sweep_and_die(self, doom: Doom) -> bool:
        """Sweep twice, which a cap makes necessary; say whether the sweeper was killed."""
        engine: Any = self.yard.new_engine()
        sweeper = self.yard.sweeper(self.service, engine=doomed(engine, doom), cap=1)
        try:
            for _ in range(2):
                await sweeper.sweep_once()
        except KilledError:
            self.state.crash(engine.bus)
            return True
        return False

    async def sweep(self) -> None:
        """Sweep in new processes, until nothing is left to be sent."""
        for _ in range(3):
            self.yard.clock.advance(2 * MINUTE)
            await self.yard.sweep(self.service, engine=self.yard.new_engine(), cap=1)

    async def work(self) -> None:
        """Let a worker do what is there."""
        async with working(self.yard, self.service, engine=self.yard.new_engine()):
            while any(item.queue == CHUNKING for item in self.state.items.values()):
                await self.yard.clock.wait(timedelta(seconds=1))


@pytest.mark.parametrize("works_first", [False, True])
async def test_killed_at_any_point_every_document_is_done_once(*, works_first: bool) -> None:
    at, killed = 0, True
    while killed:
        at += 1
        town, doom = Town(), Doom(at)
        await town.fill()
        killed = await town.sweep_and_die(doom)
        if works_first:  # what the dead one had sent is done before another sweeps
            await town.work()
        await town.sweep()
        await town.work()
        found = {each["_id"]: each for each in await town.yard.all("messages")}
        assert {one: (each["status"], each["attemptCount"]) for one, each in found.items()} == {
            "lost": ("processed", 1),
            "failed": ("processed", 2),
            "spent": ("failed_max_retries", 3),
        }
        effects = Counter(each["of"] for each in await town.yard.all("effects"))
        assert effects == {"lost": 1, "failed": 1}
        assert {each.get("claimToken") for each in found.values()} == {None}
        assert await town.yard.engine.places.astray(10) == (0, [])
        await town.yard.close()
    assert {"claim", "publish", "published", "give_up", "hold", "add"} <= set(doom.steps)
    for first in (index for index, step in enumerate(doom.steps) if step == "claim"):
        assert doom.steps[first : first + 3] == ["claim", "publish", "published"]
