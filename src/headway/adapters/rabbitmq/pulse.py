"""Proof that messages reach a worker.

A worker that is connected and gets nothing looks like one that has nothing to do. So every few
seconds it sends a message to itself, the way that events come, and takes down when it arrives.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

import pika

from headway.adapters.rabbitmq.consuming import Consumers
from headway.adapters.rabbitmq.io import IoThread
from headway.adapters.rabbitmq.outgoing import DIRECT, Outgoing
from headway.core.errors import NotPublishedError
from headway.core.showing import described
from headway.ports.clock import Clock

_LOG = logging.getLogger("headway")
_MISSED = 3


class Pulse:
    """Beats, and has the connection made anew if a few beats in a row do not arrive."""

    def __init__(
        self,
        io: IoThread,
        consumers: Consumers,
        send: Callable[[Sequence[Outgoing]], Awaitable[Sequence[bool]]],
        clock: Clock,
        *,
        every: timedelta = timedelta(seconds=5),
    ) -> None:
        self._io = io
        self._consumers = consumers
        self._send = send
        self._clock = clock
        self._every = every
        self._missed = 0
        self.proven: datetime | None = None
        """When something last arrived the whole way, and every queue was consumed from."""

    async def run(self) -> None:
        while True:
            await self._clock.wait(self._every)
            try:
                await self.beat()
            except NotPublishedError as error:
                _LOG.debug("No pulse: %s", described(error))  # publishing says so itself

    async def beat(self) -> None:
        alive = self._consumers.alive
        before = alive.beats
        beat = Outgoing(DIRECT, alive.queue, b"", pika.BasicProperties())
        (routed,) = await self._send([beat])
        if not routed:
            return  # not connected, or only just: the queue is not there yet
        for _ in range(10):
            if alive.beats > before:
                break
            await self._clock.wait(self._every / 10)
        if alive.beats > before:
            self._missed = 0
            if self._consumers.is_complete:
                self.proven = self._clock.now()
            return
        self._missed += 1
        if self._missed >= _MISSED:
            self._missed = 0
            why = f"{_MISSED} messages to itself did not arrive"
            self._io.call(partial(self._consumers.link.renew, why))
