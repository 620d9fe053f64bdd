"""A worker that stops gracefully keeps nothing back: what waits inside it is handed back too."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from headway import Event, Lifecycle, Service, Work
from headway.clock import SystemChance, SystemClock
from headway.testing.engines import (
    Publisher,
    State,
    Worker,
    sqlite_engine,
    sqlite_store,
    with_store,
)
from headway.testing.facts import Recorder
from headway.testing.ports import Engine
from headway.testing.trial import Trial
from tests.behaviour.scenes import assert_all_is_accounted_for, until
from tests.engines.pairs.harnesses import bus_parts

LEASE = timedelta(minutes=10)
MOMENT = timedelta(milliseconds=150)


class Bakery:
    """A handler whose commits lose against others, until it is told that they do not."""

    def __init__(self) -> None:
        self.is_contested = True
        self.runs = 0
        self.pause: Callable[[], Awaitable[None]] | None = None
        self.service = Service(
            "bakery", lifecycles=[Lifecycle("loaves", max_attempts=2, lease=LEASE)]
        )

        @self.service.on("LoafOrdered", documents=("loaves", "loaf"))
        async def bake(event: Event, work: Work) -> None:
            self.runs += 1
            if self.pause is not None:
                await self.pause()
            if self.is_contested:
                work.documents("ovens").update("o", {"hot": True}, expect={"hot": "never"})

        @self.service.on("Opened")
        async def opened(event: Event, work: Work) -> None:
            work.documents("ovens").insert_new({"_id": "o", "hot": False})
            work.documents("loaves").insert_new({"_id": "a", "status": "pending"})
            work.publish("LoafOrdered", {"loaf": "a"})


async def test_a_rerun_that_waits_when_the_worker_stops_is_handed_back_with_its_documents() -> None:
    bakery = Bakery()
    trial = Trial(bakery.service)
    await trial.publish("Opened")
    async with trial.running():
        await until(trial, lambda: bakery.runs == 3)
        await trial.clock.wait(timedelta(milliseconds=1))  # it waits for its next run
    (loaf,) = await trial.documents("loaves")
    assert (loaf["status"], loaf["attemptCount"]) == ("pending", 1)
    assert loaf["leaseToken"] == "waiting", "no worker holds it"
    bakery.is_contested = False
    began = trial.clock.now()
    await trial.run()
    assert trial.clock.now() - began < timedelta(seconds=5)
    (loaf,) = await trial.documents("loaves")
    assert (loaf["status"], loaf["attemptCount"]) == ("processed", 1)
    assert await trial.letters("bakery.failed") == []
    await assert_all_is_accounted_for(trial)


async def test_a_handler_that_loses_its_commit_while_the_worker_stops_is_handed_back_too() -> None:
    bakery = Bakery()
    trial = Trial(bakery.service)
    bakery.pause = lambda: trial.clock.wait(timedelta(seconds=2))
    await trial.publish("Opened")
    async with trial.running():
        await until(trial, lambda: bakery.runs == 1)
    assert bakery.runs == 1
    (loaf,) = await trial.documents("loaves")
    assert (loaf["status"], loaf["attemptCount"]) == ("pending", 1)
    assert loaf["leaseToken"] == "waiting", "no worker holds it"
    await assert_all_is_accounted_for(trial)


Opening = Callable[[], Engine]


@pytest.fixture(params=["sqlite", "joined"])
async def opening(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opening]:
    clock, chance = SystemClock(), SystemChance()
    if request.param == "sqlite":
        yield lambda: sqlite_engine(tmp_path / "bakery.db", clock, chance)
        return
    state = State()
    yield lambda: with_store(bus_parts(state, clock), sqlite_store(tmp_path / "store.db", clock))


async def _while_running(
    bakery: Bakery, engine: Engine, passing: Callable[[], Awaitable[None]]
) -> None:
    worker = Worker(
        [bakery.service],
        engine,
        clock=SystemClock(),
        chance=SystemChance(),
        observer=Recorder(),
        beats_in_thread=True,
    )
    running = asyncio.create_task(worker.run())
    await passing()
    worker.stop()
    await running


async def test_on_engines_with_a_file_too(opening: Opening) -> None:
    bakery, clock = Bakery(), SystemClock()
    engine = opening()
    await engine.open(bakery.service.queues())
    await Publisher(engine.bus, clock, SystemChance()).publish("Opened")

    async def four_runs() -> None:
        while bakery.runs < 4:  # then it waits for nearly half a second
            await clock.wait(timedelta(milliseconds=5))
        await clock.wait(MOMENT)
        assert bakery.runs == 4

    await _while_running(bakery, opening(), four_runs)
    loaf = (await engine.documents.fetch("loaves", ["a"]))["a"]
    assert (loaf["attemptCount"], loaf["leaseToken"]) == (1, "waiting")
    bakery.is_contested = False

    async def nothing_waits() -> None:
        async with asyncio.timeout(5):  # a lease takes minutes
            while (await engine.places.depths()).waiting:
                await clock.wait(timedelta(milliseconds=20))

    await _while_running(bakery, opening(), nothing_waits)
    loaf = (await engine.documents.fetch("loaves", ["a"]))["a"]
    assert (loaf["status"], loaf["attemptCount"], bakery.runs) == ("processed", 1, 5)
    await engine.close()
