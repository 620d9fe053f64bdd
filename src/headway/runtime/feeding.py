"""Keep the lanes supplied: take what may be taken, and no more than they can soon do."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial

from headway.core.facts import Fact
from headway.ports.bus import Bus, Delivery, HandedBack
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.runtime.admission import Admission, Admitted
from headway.runtime.attempt import Attempt, Ending
from headway.runtime.gate import Gate
from headway.runtime.lanes import Lanes
from headway.runtime.lease_waiters import LeaseWaiters
from headway.runtime.persistence import Persistent
from headway.runtime.prefetch import Prefetch
from headway.runtime.recover import Recovery

_LOG = logging.getLogger("headway")
_PATIENCE = timedelta(seconds=1)
_PROBE_ROUND = timedelta(milliseconds=100)
_ENDED_BY_THEN = timedelta(seconds=1)
_LAST_ADMISSION = timedelta(seconds=5)
"""How long an admission that has begun may go on after the order to stop."""
_UNCOMMITTED = 4
"""How many times what is taken ahead may be in hand, if commits are slower than handlers."""


class Feeder:
    """Takes from the bus and gives to the lanes, until cancelled."""

    def __init__(
        self,
        bus: Bus,
        admission: Admission,
        gate: Gate,
        lanes: Lanes,
        waiters: LeaseWaiters,
        *,
        recoveries: Mapping[str, Recovery],
        prefetch: Prefetch,
        persistent: Persistent,
        clock: Clock,
        chance: Chance,
        ended: Callable[[Ending], None],
        is_ending: Callable[[Delivery], bool],
        tell: Callable[[Fact], None],
    ) -> None:
        self._bus = bus
        self._admission = admission
        self._gate = gate
        self._lanes = lanes
        self._waiters = waiters
        self._recoveries = recoveries
        self._prefetch = prefetch
        self._persistent = persistent
        self._clock = clock
        self._chance = chance
        self._ended = ended
        self._is_ending = is_ending
        self._tell = tell
        self._in_hand = 0
        self._moved = asyncio.Event()
        self._admitting = asyncio.Lock()
        """Nothing else is admitted while a suspect runs alone."""

    @property
    def in_hand(self) -> int:
        """How many events were taken and are not settled."""
        return self._in_hand

    def settled(self, count: int = 1) -> None:
        """So many less are in hand."""
        self._in_hand -= count
        self._moved.set()

    def moved(self) -> None:
        """A lane has become free."""
        self._moved.set()

    async def run(self) -> None:
        while True:
            target = self._prefetch.target
            room = target - self._lanes.load
            # Half empty at least: taking for every single event that ends would cost as much as
            # the event itself.
            if room * 2 < target or self._in_hand >= target * _UNCOMMITTED:
                await self._until_moved()
            else:
                self._prefetch.emptied(self._clock.now())
                room = self._prefetch.target - self._lanes.load
                if room > 0:  # there may be none left, if the target has just become smaller
                    await self._fill(room)

    async def _fill(self, room: int) -> None:
        plan = self._gate.plan(self._clock.now())
        probed = [queue for queue, among in plan.probes.items() if await self._probe(queue, among)]
        if plan.open:
            closed = len(plan.open) < len(self._recoveries)
            patience = _PROBE_ROUND if closed else _PATIENCE
            taken = await self._take(plan.open, room, patience)
            if taken:
                self._prefetch.took(self._clock.now())
                async with self._admitting:
                    await self._admit(taken)
        elif not probed:
            await self._clock.wait(_PROBE_ROUND)

    async def _probe(self, queue: str, among: int) -> bool:
        """Try one event of a closed queue; False: there is none."""
        taken = list(await self._take([queue], among))
        if not taken:
            return False
        recovery, now = self._recoveries[queue], self._clock.now()
        probe = taken.pop(int(self._chance.draw() * len(taken)))
        if taken:
            # Behind all others, so that the next probe is chosen among different ones.
            back = [(each, HandedBack(now)) for each in taken]
            await self._persistent.until_available(
                "Handing events back", partial(self._bus.settle, back)
            )
        self._gate.probing(recovery, queue, now)
        async with self._admitting:
            is_tried = await self._admit([probe], is_probe=True)
        if is_tried:
            recovery.floods[queue].probing(now)
        else:
            self._gate.probed(queue)  # it was no event that could be tried
        return True

    async def readmit(self, attempts: Sequence[Attempt], gone: frozenset[str]) -> None:
        """Admit events again that have waited for documents; `gone` as in `Admission.admit`."""
        try:
            await self._admitting.acquire()
        except asyncio.CancelledError:
            for attempt in attempts:
                self._ended(attempt.recovery.handed_back(attempt))
            raise
        try:
            await self._admit([attempt.delivery for attempt in attempts], gone=gone)
        finally:
            self._admitting.release()

    def put_back(self, attempt: Attempt) -> None:
        """Have the bus keep an event for a moment that waits for a document."""
        self._in_hand += 1
        self._ended(attempt.recovery.postponed(attempt, self._waiters.next_back()))

    async def _take(
        self, queues: Sequence[str], limit: int, patience: timedelta = timedelta()
    ) -> Sequence[Delivery]:
        return await self._persistent.until_available(
            "Taking events", partial(self._bus.take, queues, limit, patience)
        )

    async def _admit(
        self,
        taken: Sequence[Delivery],
        *,
        is_probe: bool = False,
        gone: frozenset[str] | None = None,
    ) -> bool:
        """Give what was taken to the lanes; False: nothing of it has to be run."""
        returned = [delivery for delivery in taken if delivery.returns]
        if returned:
            adopted = await self._adopted(returned)
            taken = [delivery for delivery in taken if delivery not in adopted]
        self._in_hand += len(taken)
        admitting = asyncio.create_task(self._admission.admit(taken, gone))
        try:
            admitted = await asyncio.shield(admitting)
        except asyncio.CancelledError:
            await self._hand_back(admitting)
            raise
        for ending in admitted.endings:
            self._ended(ending)
        for attempt in (*admitted.attempts, *admitted.suspects):
            attempt.is_probe = is_probe
        for attempt in admitted.attempts:
            self._lanes.put(attempt)
        for attempt in admitted.waiting:
            self._in_hand -= 1
            if not self._waiters.add(attempt):
                self.put_back(attempt)
        if admitted.suspects:
            await self._run_alone(admitted.suspects)
        return bool(admitted.attempts or admitted.suspects)

    async def _hand_back(self, admitting: asyncio.Task[Admitted]) -> None:
        """Told to stop: hand back what has been admitted by then.

        Its documents were begun. If they were not let go, the next worker would wait for them until
        their leases end.
        """
        over = asyncio.create_task(self._clock.wait(_LAST_ADMISSION))
        await asyncio.wait({admitting, over}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not admitting.done():  # the engine is away
            admitting.cancel()
        elif not admitting.cancelled() and admitting.exception() is None:
            admitted = admitting.result()
            for ending in admitted.endings:
                self._ended(ending)
            for attempt in (*admitted.attempts, *admitted.suspects, *admitted.waiting):
                self._ended(attempt.recovery.handed_back(attempt))

    async def _adopted(self, returned: Sequence[Delivery]) -> Collection[Delivery]:
        """Recognise events that this worker lost with its connection, and still has in hand.

        The broker gives them to a worker again. Where that is this one, the attempt goes on, and
        settles what came instead of what was lost.
        """
        adopted: dict[Delivery, Delivery] = {}
        ending = [delivery for delivery in returned if self._is_ending(delivery)]
        for delivery in returned:
            attempt = self._lanes.find(delivery)
            if attempt is not None and not self._bus.owns(attempt.delivery):
                adopted[delivery], attempt.delivery = attempt.delivery, delivery
        if adopted:
            _LOG.info(
                "%d events came back after the connection was lost while their handlers still run "
                "here; they are not started again.",
                len(adopted),
            )
            # The bus need not remember them any more.
            await self._bus.settle([(lost, HandedBack()) for lost in adopted.values()])
        if ending:  # their records are about to be there
            soon = HandedBack(self._clock.now() + _ENDED_BY_THEN)
            await self._bus.settle([(delivery, soon) for delivery in ending])
        return {*adopted, *ending}

    async def _run_alone(self, suspects: Sequence[Attempt]) -> None:
        """Run events that may have killed their worker one at a time, with nothing beside them."""
        left = len(suspects)
        for attempt in suspects:
            while self._in_hand > left:
                await self._until_moved()
            begin = partial(self._bus.begin, attempt.delivery)
            if not await self._persistent.until_available("Recording a start", begin):
                # It belongs to somebody else by now, and so do its documents.
                self._ended(attempt.recovery.handed_back(attempt))
            else:
                self._tell(attempt.recovery.suspected(attempt))
                self._lanes.put(attempt)
            left -= 1
        while self._in_hand > 0:
            await self._until_moved()

    async def _until_moved(self) -> None:
        self._moved.clear()
        await self._moved.wait()
