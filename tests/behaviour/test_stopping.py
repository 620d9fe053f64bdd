"""A worker that stops gracefully keeps nothing back: what waits inside it is handed back too."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from headway import Event, Lifecycle, Service, Work
from headway.clock import SystemChance, SystemClock
from headway.testing.engines import Publisher, Worker, sqlite_engine
from headway.testing.facts import Recorder
from headway.testing.trial import Trial
from tests.behaviour.scenes import assert_all_is_accounted_for, until

LEASE = timedelta(minutes=10)
QUEUE = "bakery.loaf.ordered"


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


async def assert_loaf_is_free(trial: Trial) -> None:
    (loaf,) = await trial.documents("loaves")
    assert (loaf["status"], loaf["attemptCount"]) == ("pending", 1)
    assert loaf["leaseToken"] == "waiting", "no worker holds it"


async def test_a_rerun_that_waits_when_the_worker_stops_is_handed_back_with_its_documents() -> None:
    bakery = Bakery()
    trial = Trial(bakery.service)
    await trial.publish("Opened")
    async with trial.running():
        await until(trial, lambda: bakery.runs == 3)
        await trial.clock.wait(timedelta(milliseconds=1))  # it waits for its next run
    await assert_loaf_is_free(trial)
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
    await assert_loaf_is_free(trial)
    await assert_all_is_accounted_for(trial)


async def test_on_an_engine_with_a_file_too(tmp_path: Path) -> None:
    bakery, clock, chance = Bakery(), SystemClock(), SystemChance()
    engine = sqlite_engine(tmp_path / "bakery.db", clock, chance)
    await engine.open(bakery.service.queues())
    await Publisher(engine.bus, clock, chance).publish("Opened")

    async def running_until(is_over: Callable[[], Awaitable[bool]]) -> dict[str, Any]:
        worker = Worker(
            [bakery.service],
            sqlite_engine(tmp_path / "bakery.db", clock, chance),
            clock=clock,
            chance=chance,
            observer=Recorder(),
            beats_in_thread=True,
        )
        task = asyncio.create_task(worker.run())
        async with asyncio.timeout(5):  # a lease takes minutes
            while not await is_over():
                await clock.wait(timedelta(milliseconds=5))
        worker.stop()
        await task
        return (await engine.documents.fetch("loaves", ["a"]))["a"]

    async def waits_after_four_runs() -> bool:
        (depths,) = (each for each in (await engine.places.depths()).queues if each.queue == QUEUE)
        return bakery.runs == 4 and depths.leased == 1

    async def nothing_waits() -> bool:
        return not (await engine.places.depths()).waiting

    loaf = await running_until(waits_after_four_runs)  # for nearly half a second
    assert (loaf["attemptCount"], loaf["leaseToken"], bakery.runs) == (1, "waiting", 4)
    bakery.is_contested = False
    loaf = await running_until(nothing_waits)
    assert (loaf["status"], loaf["attemptCount"], bakery.runs) == ("processed", 1, 5)
    await engine.close()
