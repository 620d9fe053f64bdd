"""A process that can die: whatever it was about to do afterwards does not happen."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

from headway.clock import ClockReading
from headway.testing.chance import Seeded
from headway.testing.engines import memory_engine
from tests.chaos.simulation.faults import Disposition, Faults
from tests.chaos.simulation.history import History, ViolationError
from tests.chaos.simulation.loop import OWNER, Owner, SimulatedClock
from tests.chaos.simulation.state import WatchedState, nowhere

T = TypeVar("T")
Call = Callable[[], Awaitable[T]]

_ROUNDS_TO_REAP = 1000


class DeadError(BaseException):
    """The process is gone. No `except Exception` can make it go on."""


class InjectedError(ConnectionError):
    """The engine did not answer."""


class Disks:
    """What the processes of one world share: storage, faults, and the story of it all."""

    def __init__(self, seed: int, *, recognises: bool, state: type[WatchedState]) -> None:
        self.seed = seed
        self.state = state(recognises=recognises)
        self.faults = Faults(seed)
        self.history = History()
        self.clock = SimulatedClock()

        self.violations: list[str] = []
        self.trouble = asyncio.Event()

    def check(self) -> None:
        """See that nothing accepted is nowhere. In two places it may be, between two steps."""
        for queue, operation in nowhere(self.state):
            self.violated(f"{operation} of {queue} is nowhere")

    def violated(self, what: str) -> None:
        """Take down a broken promise. Raising would not do: the runtime handles errors."""
        self.violations.append(what)
        self.trouble.set()


class Process:
    """Its clock, its connection to the bus, and its tasks. It is the clock of all that it runs."""

    def __init__(self, disks: Disks, name: str) -> None:
        self.disks = disks
        self.name = name
        self.chance = Seeded(disks.faults.random.getrandbits(32))
        self.engine = memory_engine(self, self.chance, disks.state)
        self.bus: Any = self.engine.bus
        self.is_dead = False
        self.death = asyncio.Event()
        self.tasks: Owner = set()

    # The clock

    def now(self) -> datetime:
        self.alive()
        return self.disks.clock.now()

    def read(self) -> ClockReading:
        self.alive()
        return self.disks.clock.read()

    def sleep(self, delay: timedelta) -> None:
        self.disks.clock.sleep(delay)

    async def wait(self, delay: timedelta) -> None:
        self.alive()
        await self.disks.clock.wait(delay)
        self.alive()

    # Steps

    async def step(
        self,
        what: str,
        call: Call[T],
        *,
        half: Call[object] | None = None,
        ack_lost: Call[T] | None = None,
        about: str = "",
    ) -> T:
        """Call an engine, as the seed has it: well, or dying or failing around it."""
        self.alive()
        fate = self.disks.faults.fate(what)
        if fate is Disposition.ACK_LOST and ack_lost is None:
            fate = Disposition.ANSWER_LOST
        self.tell(what, f"{about} {'' if fate is Disposition.WELL else f'[{fate}]'}")
        await self._on_the_way()
        if fate is Disposition.DIES_BEFORE:
            self.die(what)
        if fate is Disposition.FAILS:
            raise InjectedError(f"{what}: nothing took effect")
        if fate in {Disposition.DIES_HALFWAY, Disposition.HALF_LOST}:
            await self._break_off(what, fate, half)
        answer = await (ack_lost or call)() if fate is Disposition.ACK_LOST else await call()
        self.disks.check()
        if fate is Disposition.DIES_AFTER:
            self.die(what)
        if fate is Disposition.ANSWER_LOST:
            if what == "take":  # the bus sees that nobody received them
                self.disks.state.disconnect(self.bus)
            raise InjectedError(f"{what}: all of it took effect")
        await self._on_the_way()
        return answer

    async def _break_off(self, what: str, fate: Disposition, half: Call[object] | None) -> NoReturn:
        if half is not None:
            await half()
            self.disks.check()
        if fate is Disposition.DIES_HALFWAY:
            self.die(what)
        raise InjectedError(f"{what}: some of it took effect")

    async def _on_the_way(self) -> None:
        seconds = self.disks.faults.latency()
        if seconds:
            await asyncio.sleep(seconds)
        self.alive()

    def tell(self, what: str, about: str = "") -> None:
        self.disks.history.add(self.name, what, about)

    # Life and death

    def alive(self) -> None:
        if self.is_dead:
            raise DeadError(self.name)

    def kill(self, why: str) -> None:
        """End the process; the bus notices at once, or some seconds later."""
        if self.is_dead:
            return
        self.tell("DIES", why)
        self.is_dead = True
        self.death.set()
        if self.disks.faults.happens(0.7):
            self.disks.state.crash(self.bus)
        else:
            late = 10 * self.disks.faults.random.random()
            asyncio.get_running_loop().call_later(late, self.disks.state.crash, self.bus)
        self.disks.check()

    def die(self, why: str) -> NoReturn:
        """Let the running task be the one that takes the process down."""
        self.kill(why)
        raise DeadError(self.name)

    def start(self, main: Call[T]) -> "asyncio.Task[T]":
        """Run something as a part of this process."""

        async def whole() -> T:
            return await main()

        context = copy_context()
        context.run(OWNER.set, self.tasks)
        return asyncio.get_running_loop().create_task(whole(), context=context)

    async def reap(self) -> None:
        """Take down what is left of it in this interpreter."""
        for _ in range(_ROUNDS_TO_REAP):
            if not self.tasks:
                return
            for task in list(self.tasks):
                task.cancel()
            await asyncio.sleep(0)
        raise ViolationError(f"{self.name} cannot be taken down: {self.tasks}")


class Office(Process):
    """A client's or an operator's process: where a worker would die, it tries once more."""

    def die(self, why: str) -> NoReturn:
        raise InjectedError(f"{why}: begun again")
