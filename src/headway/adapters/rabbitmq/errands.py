"""What a bus does beside being asked, and does not give up while the broker is away."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from pika.exceptions import AMQPError

from headway.core.errors import ConfigurationError
from headway.core.showing import described
from headway.ports.clock import Clock

T = TypeVar("T")
_LOG = logging.getLogger("headway")
_PAUSE = timedelta(seconds=1)


class Errands:
    """Tasks that nobody waits for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: set[asyncio.Task[None]] = set()

    def send(self, errand: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(errand)
        self._running.add(task)
        task.add_done_callback(self._over)
        return task

    async def insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until the broker does it."""
        refused = False
        while True:
            try:
                return await ask()
            except ConfigurationError as error:
                # Rights or settings were changed under a worker that runs: somebody will mend it.
                if not refused:
                    _LOG.error("RabbitMQ refuses what it did before: %s", error)
                refused = True
                await self._clock.wait(_PAUSE)
            except (ConnectionError, AMQPError) as error:
                _LOG.debug("RabbitMQ did not do it yet: %s", described(error))
                await self._clock.wait(_PAUSE)

    def cancel(self) -> None:
        for task in self._running:
            task.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.critical("Headway itself failed", exc_info=error)
