"""The bus in one SQLite file."""

import asyncio
import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from headway.adapters.sqlite import publishing, taking
from headway.adapters.sqlite.bell import Bell
from headway.adapters.sqlite.liveness import Liveness, Worker, dead_among, live_versions
from headway.adapters.sqlite.reader import Readers
from headway.adapters.sqlite.timeline import Timeline
from headway.adapters.sqlite.writer import Writer
from headway.ports.bus import Delivery, Done, HandedBack, Message, Queue, Then
from headway.ports.unrouted import OnStep

_PROOF = "select 1 from headway_queues"
_NAMED = "sqlite-"
"""Begins the names of workers whose queues are in an SQLite file."""


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

    @property
    def worker(self) -> str:
        return f"{_NAMED}{self._worker.token}"

    async def gone(self, workers: Collection[str]) -> Collection[str]:
        tokens = {each.removeprefix(_NAMED) for each in workers if each.startswith(_NAMED)}
        if not tokens:
            return ()
        dead, unknown = await self._readers.run(lambda c: dead_among(c, tokens))
        if dead:
            await self._look()  # what they had taken is returned too
        return {f"{_NAMED}{token}" for token in dead | unknown}

    def owns(self, delivery: Delivery) -> bool:
        return bool(delivery.receipt[1] == self._worker.token)

    async def open(self, queues: Sequence[Queue], on_routed: OnStep | None = None) -> None:
        routed = some = await self._writer.run(
            lambda c: publishing.declare(c, queues, self._time.moment())
        )
        types = [event_type for queue in queues for event_type in queue.event_types]
        while some:  # there may be more than one commit should hold
            self._bell.ring()
            some = await self._writer.run(lambda c: publishing.route(c, types, self._time.moment()))
            routed += some
        if routed and on_routed is not None:
            on_routed(routed)
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
            due = await self._readers.run(lambda c: taking.next_due(c, queues, self._worker))
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

    async def announce(
        self,
        service: str,  # noqa: ARG002 (a queue belongs to one service)
        version: str,
        queues: Sequence[str],
        grace: timedelta,
    ) -> None:
        def show(connection: sqlite3.Connection) -> None:
            self._worker.announce(connection, version, queues, grace, self._time.moment().at)

        await self._writer.run(show)

    async def live_versions(self, queue: str) -> Collection[str]:
        return await self._readers.run(lambda c: live_versions(c, queue, self._time.moment().at))

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
                await self._writer.run(lambda c: self._worker.leave(c, self._time.moment().at))
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
