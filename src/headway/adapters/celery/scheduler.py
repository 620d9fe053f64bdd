"""Have keys looked at later by a task of Celery."""

import asyncio
from datetime import timedelta
from typing import Any

from headway.ports.clock import Clock

_PAUSE = timedelta(seconds=5)


class CeleryScheduler:
    """Sends a task with the key, to be run after a delay. The broker may be Redis or RabbitMQ.

    A broker that is away is not tried again at once: the index of due keys has the key already, and
    to find out takes seconds. For a while all others are told without asking.
    """

    def __init__(self, task: Any, clock: Clock) -> None:
        self._task = task
        self._clock = clock
        self._ask_again = clock.now()
        self._error: Exception | None = None

    async def schedule(self, key: str, delay: timedelta) -> None:
        if self._error is not None and self._clock.now() < self._ask_again:
            raise self._error
        try:
            await asyncio.to_thread(self._send, key, delay.total_seconds())
        except Exception as error:  # whatever the client of a broker raises; it goes on
            self._error, self._ask_again = error, self._clock.now() + _PAUSE
            raise
        self._error = None

    def _send(self, key: str, seconds: float) -> None:
        self._task.apply_async((key,), countdown=seconds, retry=False)
