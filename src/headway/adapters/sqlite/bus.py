"""The bus in one SQLite file."""

import asyncio
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

from headway.adapters.sqlite import publishing, taking
from headway.adapters.sqlite.bell import Bell
from headway.adapters.sqlite.liveness import Liveness, Worker
from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.timeline import Timeline
from headway.adapters.sqlite.writer import Writer
from headway.ports.bus import Delivery, Done, HandedBack, Message, Queue, Then

_PROOF = "select 1 from headway_queues"


class SqliteBus:
    """Takes under the token of its worker, which beats for as long as the process lives."""

    atomic_publish = True
    finds_parked = True

    def __init__(
        self,
        *,
        writer: Writer,
        readers: Readers,
        bell: Bell,
        worker: Worker,
        liveness: Liveness,
        time: Timeline,
    ) -> None:
        self.liveness = liveness
        self._writer = writer
        self._readers = readers
        self._bell = bell
        self._worker = worker
        self._time = time
        self._closed = False
        self._handed_back = False
        """All but what others return when this process is gone; the file is still open."""
        self._errands: set[asyncio.Task[Sequence[bool]]] = set()

    async def open(self, queues: Sequence[Queue]) -> None:
        await self._writer.run(lambda connection: publishing.declare(connection, queues))
        await self._writer.run(self._worker.register)
        self.liveness.start()
        await self._look()

    async def publish(self, messages: Sequence[Message]) -> Sequence[int]:
        counts = await self._writer.run(
            lambda c: publishing.publish(c, messages, self._time.moment())
        )
        self._bell.ring()
        return counts

    async def take(
        self, queues: Sequence[str], limit: int, patience: timedelta = timedelta()
    ) -> Sequence[Delivery]:
        if not queues or limit <= 0:
            return []
        deadline: float | None = None
        while not self._is_closed():
            rings = self._bell.rings
            taken = await self._take(queues, limit)
            now = self._time.moment().at  # the file is open by now
            if deadline is None:
                deadline = now + patience.total_seconds()
            if taken or now >= deadline:
                return taken
            due = await self._readers.run(lambda c: taking.next_due(c, queues))
            until = deadline if due is None else min(deadline, due)
            while not self._is_closed() and (now := self._time.moment().at) < until:
                if await self._bell.heard(rings, timedelta(seconds=until - now)):
                    break
        return []

    async def begin(self, delivery: Delivery) -> bool:
        return await self._writer.run(lambda connection: taking.begin(connection, delivery))

    async def settle(self, settlements: Sequence[tuple[Delivery, Then]]) -> Sequence[bool]:
        def work(connection: sqlite3.Connection) -> list[bool]:
            moment = self._time.moment()
            return [taking.settle(connection, *each, moment) for each in settlements]

        settled = await self._writer.run(work)
        if any(not isinstance(then, Done) for _, then in settlements):
            self._bell.ring()
        return settled

    async def resume(self, queue: str) -> int:
        resumed = await self._writer.run(lambda c: taking.resume(c, queue, self._time.moment()))
        self._bell.ring()
        return resumed

    async def proven(self) -> datetime | None:
        """Whoever can read the file gets what is in it."""
        await self._readers.run(lambda connection: connection.execute(_PROOF).fetchone())
        return self._time.moment().now

    async def hand_back_all(self, keep: Sequence[Delivery]) -> None:
        if self._closed:
            return
        self._closed = True
        ids = [delivery.receipt[0] for delivery in keep]
        await self._writer.run(lambda connection: self._worker.hand_back_others(connection, ids))
        self._bell.ring()
        self._handed_back = True

    async def close(self) -> None:
        if self._closed and not self._handed_back:
            return
        handed_back, self._handed_back, self._closed = self._handed_back, False, True
        self._bell.ring()
        if self._errands:
            await asyncio.wait(self._errands)
        await asyncio.to_thread(self.liveness.stop)
        try:
            if self._worker.token is not None and not handed_back:
                await self._writer.run(self._worker.leave)
        finally:
            await asyncio.to_thread(self._let_go)

    async def bury(self, pid: int) -> int:
        """Return at once what a child had taken that has just ended; say how many workers it was.

        For a supervisor that has waited for the child: others find out at their next look.
        """
        return await self._returned(await asyncio.to_thread(self.liveness.bury, pid))

    async def _look(self) -> int:
        return await self._returned(await asyncio.to_thread(self.liveness.look))

    async def _returned(self, dead: int) -> int:
        if dead:
            self._bell.ring()
        return dead

    async def _take(self, queues: Sequence[str], limit: int) -> list[Delivery]:
        taken = await self._writer.run(
            lambda c: taking.take(c, self._worker, queues, limit, self._time.moment()),
            unwanted=self._give_back,
        )
        self.liveness.start()
        return taken

    def _give_back(self, deliveries: list[Delivery]) -> None:
        """Nobody waits for these any more: whoever asked for them was cancelled."""
        if deliveries and not self._closed:
            back = [(delivery, HandedBack()) for delivery in deliveries]
            errand = asyncio.ensure_future(self.settle(back))
            self._errands.add(errand)
            errand.add_done_callback(self._errands.discard)

    def _is_closed(self) -> bool:
        return self._closed

    def _let_go(self) -> None:
        self._writer.close()
        self._readers.close()
        self._bell.close()
