"""Processes that die and come back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from headway import Service
from headway.facts import Fact
from headway.settings import WorkerSettings
from headway.testing.engines import Worker
from headway.testing.ports import Engine
from tests.chaos.simulation.process import Disks, InjectedError, Process
from tests.chaos.simulation.state import WatchedState

Main = Callable[[Process], Awaitable[None]]


class Population:
    """The processes of one world, which share its disks."""

    def __init__(self, seed: int, *, recognises: bool, state: type[WatchedState]) -> None:
        self.disks = Disks(seed, recognises=recognises, state=state)
        self.state = self.disks.state
        self.alive: list[Process] = []
        self._slots: list[asyncio.Task[None]] = []
        self.workers: dict[Process, Worker] = {}
        self.asked: set[Process] = set()
        """Those whose worker was asked to stop."""
        self._closing = False

    def tell(self, fact: Fact) -> None:
        """Hear facts, as the observer of all workers."""
        self.disks.history.add("", f"fact {type(fact).__name__}")

    def populate(self, mains: dict[str, Main]) -> None:
        """Start a process of each name, and another one in its place whenever it has ended."""
        self._slots = [asyncio.create_task(self._keep(*each)) for each in mains.items()]

    async def _keep(self, name: str, main: Main) -> None:
        number = 0
        while not self._closing:
            number += 1
            process = Process(self.disks, f"{name}.{number}")
            self.alive.append(process)
            process.tell("STARTS")
            running = process.start(lambda p=process: main(p))  # type: ignore[misc]
            death = asyncio.create_task(process.death.wait())
            await asyncio.wait({running, death}, return_when=asyncio.FIRST_COMPLETED)
            death.cancel()
            if not process.is_dead:
                error = running.exception()
                if error is not None and not isinstance(error, InjectedError):
                    self.disks.violated(f"{process.name} ended with {error!r}")
                process.kill(f"exits: {error!r}")
            self.alive.remove(process)
            await process.reap()
            await asyncio.sleep(5 * self.disks.faults.random.random())

    async def end(self) -> None:
        self._closing = True
        for process in list(self.alive):
            process.kill("the end")
        await asyncio.gather(*self._slots)

    async def work(
        self, process: Process, services: Sequence[Service], engine: Engine, concurrency: int
    ) -> None:
        """Run a worker, which ends only if it is asked to."""
        worker = Worker(
            services,
            engine,
            clock=process,
            chance=process.chance,
            observer=self,
            settings=WorkerSettings(concurrency=concurrency),
            name=process.name,
        )
        self.workers[process] = worker
        try:
            await worker.run()
            if process not in self.asked:
                self.disks.violated(f"{process.name} ended although it was not asked to")
        finally:
            # Nothing that it still does has an effect; it must only not begin again.
            worker._lanes._cancelling = True
            del self.workers[process]
