"""A simulated world: workers that die and come back, a client, an operator, and bad luck."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from headway import Event
from headway.facts import Fact, HealthChanged
from headway.operations import FailedQueues, Letter
from headway.runtime.failed_sending import again
from headway.settings import WorkerSettings
from headway.testing.engines import Publisher, Worker, message_of
from headway.testing.ports import Delivery, Message, encode
from tests.chaos.simulation.engines import Parts
from tests.chaos.simulation.faults import Faults
from tests.chaos.simulation.ports import FaultyBus
from tests.chaos.simulation.process import Disks, InjectedError, Office, Process
from tests.chaos.simulation.services import Script, services

_FAULTS_END = timedelta(minutes=3)
_REST_WITHIN = timedelta(hours=3)
_MOST_REQUEUES = 2
_STRIKES = ("kill", "cut", "zombie", "stop", "copy", "copy")
_HONEST = Parts()
_NO_ORDER = encode(Event("OrderPlaced", "", data={}))
_NO_HANDLER = encode(Event("OrderEaten", "", data={}))


class World:
    """One course of events, made from a seed."""

    def __init__(self, seed: int, parts: Parts = _HONEST) -> None:
        self.seed = seed
        self.one_commit = seed % 3 == 0
        self.disks = Disks(seed, recognises=self.one_commit, state=parts.state)
        self.state = self.disks.state
        self.script = Script(seed)
        self.was_down = False
        """Some worker saw an outage: attempts may have been given back."""
        self.requeued: dict[str, Message] = {}
        """What the operator has begun to send again, by letter."""
        self._parts = parts
        self._seen: list[Delivery] = []
        self._workers: list[Process] = []
        self._stops: dict[Process, Callable[[], None]] = {}
        self._published = asyncio.Event()
        self._closing = False

    def tell(self, fact: Fact) -> None:
        """Hear facts, as the observer of all workers."""
        if isinstance(fact, HealthChanged) and fact.down:
            self.was_down = True
        self.disks.history.add("", f"fact {type(fact).__name__}")

    async def live(self) -> None:
        """Let it all happen: first with faults, then without, until everything is at rest."""
        faults = self.disks.faults
        self.state.documents["stock"] = {"apples": b'{"_id":"apples","taken":0}'}
        office = Office(self.disks, "office")
        declared = [queue for each in services(office, self.script) for queue in each.queues()]
        await office.bus.open(declared)
        names = [f"w{number}" for number in range(1, faults.random.randint(2, 4))]
        slots = [asyncio.create_task(self._keep_running(name)) for name in names]
        others = (self._publish(office), self._operate(office), self._bad_luck())
        tasks = [asyncio.create_task(each) for each in others]
        await self._unless_trouble(self._faulty_phase())
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, Exception):
                raise error
        faults.left = 0
        self.disks.history.add("", "CALM")
        await self._unless_trouble(self._calm_phase(office))
        self._closing = True
        for process in list(self._workers):
            process.kill("the end")
        await asyncio.gather(*slots)

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

    async def _calm_phase(self, office: Process) -> None:
        await self._rest()
        # A requeue that broke off is done again, as a person would. So is a letter that came back:
        # where store and bus are two things, a person who dies before a requeue is taken down may
        # leave a record that still holds the letter, and writes it once more.
        for queue, letters in self.state.letters.items():
            for letter in list(letters.values()):
                if letter.letter_id in self.requeued:
                    await self._requeue(office, queue, letter)
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

    # Workers

    async def _keep_running(self, name: str) -> None:
        """Start a worker, and another one in its place whenever it has ended."""
        number = 0
        while not self._closing:
            number += 1
            process = Process(self.disks, f"{name}.{number}")
            self._workers.append(process)
            await self._run(process)
            self._workers.remove(process)
            await asyncio.sleep(5 * self.disks.faults.random.random())

    async def _run(self, process: Process) -> None:
        worker = Worker(
            services(process, self.script),
            self._parts.engine(process, self._seen, one_commit=self.one_commit),
            clock=process,
            chance=process.chance,
            observer=self,
            settings=WorkerSettings(concurrency=self.disks.faults.random.randint(1, 4)),
            name=process.name,
        )
        asked = False

        def stop() -> None:
            nonlocal asked
            asked = True
            worker.stop()

        self._stops[process] = stop
        process.tell("STARTS")
        main = process.start(worker.run)
        death = asyncio.create_task(process.death.wait())
        await asyncio.wait({main, death}, return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        del self._stops[process]
        if not process.is_dead:
            error = main.exception()
            if error is None and not asked:
                self.disks.violated(f"{process.name} ended although nobody had asked it to")
            if error is not None and not isinstance(error, InjectedError):
                self.disks.violated(f"{process.name} ended with {error!r}")
            process.kill(f"exits: {error!r}")
        # Nothing that it still does has an effect; it must only not begin again.
        worker._lanes._cancelling = True
        await process.reap()

    # The client and the operator

    async def _publish(self, office: Process) -> None:
        dice = self.disks.faults.random
        bus = FaultyBus(office, [])
        publisher = Publisher(bus, office, office.chance)
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

    async def _operate(self, office: Process) -> None:
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
                await self._requeue(office, *dice.choice(letters))

    async def _requeue(self, office: Process, queue: str, letter: Letter) -> None:
        self.requeued[letter.letter_id] = again(letter, letter.queue)
        engine = self._parts.engine(office, [], one_commit=self.one_commit)
        desk = FailedQueues(engine, office, office.chance, who="the operator of a simulation")
        # Even what was overtaken: the operator insists, and whatever is sent must come to an end.
        await _insist(partial(desk.requeue, queue, ids=[letter.letter_id], superseded=True))

    # Bad luck

    async def _bad_luck(self) -> None:
        faults = self.disks.faults
        while not faults.is_over:
            await asyncio.sleep(8 * faults.random.random())
            alive = [process for process in self._stops if not process.is_dead]
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
                self._stops[process]()
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
