"""A sweeper killed before and after every durable step: each attempt is made once, and counted."""

from collections import Counter
from collections.abc import Awaitable, Callable
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
    parts: dict[str, Any] = {
        name: Doomed(getattr(inner, name), doom) for name in ("candidates", "leases", "totals")
    }
    bus: Any = Doomed(engine.bus, doom)
    return replace(engine, bus=bus, sweeping=replace(inner, **parts))


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
        failed = {"status": "failed", "lastAttemptTime": self.yard.ago(HOUR)}
        await self.yard.put(
            "messages",
            {"_id": "lost", "status": "pending", "attemptCount": 0},
            {"_id": "failed", "attemptCount": 1, **failed},
            {"_id": "spent", "attemptCount": 3, **failed},
        )

    async def sweep(self) -> None:
        """Sweep in a new process, until nothing is left to be sent."""
        for _ in range(3):
            self.yard.clock.advance(2 * MINUTE)
            await self.yard.sweep(self.service, engine=self.yard.new_engine(), cap=1)

    async def work(self) -> None:
        """Let a worker do what is there."""
        async with working(self.yard, self.service, engine=self.yard.new_engine()):
            while any(item.queue == CHUNKING for item in self.state.items.values()):
                await self.yard.clock.wait(timedelta(seconds=1))

    async def documents(self) -> dict[str, Any]:
        return {each["_id"]: each for each in await self.yard.all("messages")}

    async def effects(self) -> Counter[str]:
        return Counter(each["of"] for each in await self.yard.all("effects"))


After = Callable[[Town], Awaitable[None]]


async def every_death(make: Callable[[], Town], then: After) -> list[str]:
    """Kill a sweeper at every point of two runs, each in a world of its own; give its steps."""
    at, killed = 0, True
    while killed:
        at += 1
        town, doom = make(), Doom()
        await town.fill()
        engine = town.yard.new_engine()
        # With a cap, so that two runs are needed, and caps are kept.
        sweeper = town.yard.sweeper(town.service, engine=doomed(engine, doom), cap=1)
        doom.at = at
        try:
            for _ in range(2):
                await sweeper.sweep_once()
            killed = False
        except KilledError:
            bus: Any = engine.bus
            town.state.crash(bus)
        await then(town)
        await town.yard.close()
    return doom.steps


@pytest.mark.parametrize("works_first", [False, True])
async def test_killed_at_any_point_every_document_is_done_once(*, works_first: bool) -> None:
    async def then(town: Town) -> None:
        if works_first:  # what the dead one had sent is done before another sweeps
            await town.work()
        await town.sweep()
        await town.work()
        found = await town.documents()
        assert {one: (each["status"], each["attemptCount"]) for one, each in found.items()} == {
            "lost": ("processed", 1),
            "failed": ("processed", 2),
            "spent": ("failed_max_retries", 3),
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
        assert {(each["status"], each["attemptCount"]) for each in found.values()} == {
            ("failed_max_retries", MAX_ATTEMPTS)
        }
        assert town.runs == {"lost": 3, "failed": 2}

    await every_death(lambda: Town(fails=True), then)


async def test_killed_while_it_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bus refuses, and the sweeper dies before or after it could say so."""

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

        def publish(_: Any, messages: Any, now: Any) -> Any:
            if any(message.event_type == "JSONParsed" for message in messages):
                raise TypeError("it does not fit")
            return real(messages, now)

        monkeypatch.setattr(WatchedState, "publish", publish)
        return town

    steps = await every_death(make, then)
    assert "give_back" in steps
    assert "publish" not in steps
