"""A simulated world: workers that die and come back, a client, an operator, and bad luck."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

from headway import Event
from headway.facts import Fact, HealthChanged
from headway.operations import FailedQueues, Letter
from headway.testing.engines import Publisher, message_of
from headway.testing.ports import Delivery, encode
from tests.chaos.simulation.engines import Parts
from tests.chaos.simulation.faults import Faults
from tests.chaos.simulation.population import Population
from tests.chaos.simulation.ports import FaultyBus
from tests.chaos.simulation.process import InjectedError, Office, Process
from tests.chaos.simulation.services import Script, services

_FAULTS_END = timedelta(minutes=3)
_REST_WITHIN = timedelta(hours=3)
_MOST_REQUEUES = 2
_STRIKES = ("kill", "cut", "zombie", "stop", "copy", "copy")
_HONEST = Parts()
_NO_ORDER = encode(Event("OrderPlaced", "", data={}))
_NO_HANDLER = encode(Event("OrderEaten", "", data={}))


class World(Population):
    """One course of events, made from a seed."""

    def __init__(self, seed: int, parts: Parts = _HONEST) -> None:
        self.one_commit = seed % 3 == 0
        super().__init__(seed, recognises=self.one_commit, state=parts.state)
        self.office = Office(self.disks, "office")
        """Of the client and the operator."""
        self.script = Script(seed)
        self.was_down = False
        """Some worker saw an outage: attempts may have been given back."""
        self.requeued: dict[str, tuple[str, str]] = {}
        """Operation and generation of what the operator has begun to send again, by letter."""
        self._parts = parts
        self._seen: list[Delivery] = []
        self._published = asyncio.Event()

    def tell(self, fact: Fact) -> None:
        super().tell(fact)
        if isinstance(fact, HealthChanged) and fact.down:
            self.was_down = True

    async def live(self) -> None:
        """Let it all happen: first with faults, then without, until everything is at rest."""
        faults = self.disks.faults
        self.state.documents["stock"] = {"apples": b'{"_id":"apples","taken":0}'}
        declared = [queue for each in services(self.office, self.script) for queue in each.queues()]
        await self.office.bus.open(declared)
        self.populate({f"w{n}": self._worker for n in range(1, faults.random.randint(2, 4))})
        others = (self._publish(), self._operate(), self._bad_luck())
        tasks = [asyncio.create_task(each) for each in others]
        await self._unless_trouble(self._faulty_phase())
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, Exception):
                raise error
        faults.left = 0
        self.disks.history.add("", "CALM")
        await self._unless_trouble(self._calm_phase())
        await self.end()

    async def _worker(self, process: Process) -> None:
        await self.work(
            process,
            services(process, self.script),
            self._parts.engine(process, self._seen, one_commit=self.one_commit),
            concurrency=self.disks.faults.random.randint(1, 4),
        )

    async def _unless_trouble(self, phase: Awaitable[None]) -> None:
        trouble = asyncio.create_task(self.disks.trouble.wait())
        going = asyncio.ensure_future(phase)
        await asyncio.wait({going, trouble}, return_when=asyncio.FIRST_COMPLETED)
        trouble.cancel()
        if going.done():
            going.result()
        going.cancel()

    async def _faulty_phase(self) -> None:
        await self._published.wait()
        end = self.disks.clock.now() + _FAULTS_END * self.disks.faults.random.random()
        while self.disks.clock.now() < end:
            await asyncio.sleep(1)
            if self.disks.faults.is_over and self.is_at_rest:
                return

    async def _calm_phase(self) -> None:
        await self._rest()
        # A requeue that broke off is done again, as a person would. So is a letter that came back:
        # where store and bus are two things, a person who dies before a requeue is taken down may
        # leave a record that still holds the letter, and writes it once more.
        for queue, letters in self.state.letters.items():
            for letter in list(letters.values()):
                if letter.letter_id in self.requeued:
                    await self._requeue(queue, letter)
        await self._rest()

    async def _rest(self) -> None:
        end = self.disks.clock.now() + _REST_WITHIN
        while not self.is_at_rest:
            if self.disks.clock.now() > end:
                left = [f"{i.travel.operation} of {i.queue}" for i in self.state.items.values()]
                self.disks.violated(f"after {_REST_WITHIN} of calm there is still: {left}")
                return
            await asyncio.sleep(1)

    @property
    def is_at_rest(self) -> bool:
        """Nothing is in a queue and nothing is left to be sent."""
        records = (kept.record for kept in self.state.records.values())
        return not self.state.items and not any(r.outgoing or r.letter for r in records)

    # The client and the operator

    async def _publish(self) -> None:
        dice = self.disks.faults.random
        bus: Any = FaultyBus(self.office, [])
        publisher = Publisher(bus, self.office, self.office.chance)
        for number in range(dice.randint(3, 12)):
            name = f"order{number}"
            order = f"o{number - 1}" if dice.random() < 0.1 else f"o{number}"
            data = {"order": order, "parcels": dice.choice((0, 1, 1, 2))}
            if dice.random() < 0.1:
                body = dice.choice((b"{", _NO_ORDER, _NO_HANDLER))
                message = message_of(body, "OrderPlaced", name)
                await _insist(partial(bus.publish, [message]))
            else:
                await _insist(partial(publisher.publish, "OrderPlaced", data, event_id=name))
            await asyncio.sleep(3 * dice.random() ** 4)
        self._published.set()

    async def _operate(self) -> None:
        """Send letters again, now and then, as a person does."""
        dice = self.disks.faults.random
        while not self.disks.faults.is_over or not self._published.is_set():
            await asyncio.sleep(20 * dice.random())
            letters = [
                (queue, letter)
                for queue, letters in self.state.letters.items()
                for letter in letters.values()
                if letter.requeues < _MOST_REQUEUES
            ]
            if letters:
                await self._requeue(*dice.choice(letters))

    async def _requeue(self, queue: str, letter: Letter) -> None:
        generation = f"{letter.letter_id}.{letter.requeues + 1}"
        self.requeued[letter.letter_id] = (letter.operation, generation)
        engine = self._parts.engine(self.office, [], one_commit=self.one_commit)
        desk = FailedQueues(engine, self.office, self.office.chance, who="an operator")
        # Even what was overtaken: the operator insists, and whatever is sent must come to an end.
        await _insist(partial(desk.requeue, queue, ids=[letter.letter_id], superseded=True))

    # Bad luck

    async def _bad_luck(self) -> None:
        faults = self.disks.faults
        while not faults.is_over:
            await asyncio.sleep(8 * faults.random.random())
            alive = [process for process in self.workers if not process.is_dead]
            if alive and faults.left > 0:
                faults.left -= 1
                self._strike(faults, faults.random.choice(alive))

    def _strike(self, faults: Faults, process: Process) -> None:
        match faults.random.choice(_STRIKES):
            case "kill":
                process.kill("bad luck")
            case "cut":
                process.tell("CUT OFF")
                self.state.disconnect(process.bus)
            case "zombie":
                process.tell("GIVEN UP")
                self.state.crash(process.bus)
                late = 40 * faults.random.random()
                asyncio.get_running_loop().call_later(late, process.kill, "zombie")
            case "stop":
                process.tell("STOPS")
                self.asked.add(process)
                self.workers[process].stop()
            case _ if self._seen:
                delivery = faults.random.choice(self._seen)
                self.disks.history.add("", "COPY", delivery.travel.operation[:8])
                self.state.duplicate(delivery)


async def _insist(call: Callable[[], Awaitable[object]]) -> None:
    """Do it again until it is known to have worked, under the same name."""
    while True:
        try:
            await call()
        except InjectedError:
            await asyncio.sleep(0.5)
        else:
            return
