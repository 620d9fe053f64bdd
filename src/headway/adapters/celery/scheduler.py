"""Have keys looked at later by a task of Celery."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from headway.ports.clock import Clock

_PAUSE = timedelta(seconds=5)
_AT_MOST = timedelta(seconds=3)
"""So long a broker is waited for. One that hangs would keep a process from its end."""
_THREADS = 2
"""Of its own: a broker that hangs must not take those that everything else in a process uses."""


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
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="headway-celery")

    async def schedule(self, key: str, delay: timedelta) -> None:
        self._refuse_while_away()
        loop = asyncio.get_running_loop()
        sending = loop.run_in_executor(self._threads, self._send, key, delay.total_seconds())
        try:
            await self._sent(sending)
        except Exception as error:  # whatever the client of a broker raises; it goes on
            if error is not self._error:
                self._error, self._ask_again = error, self._clock.now() + _PAUSE
            raise
        self._error = None

    async def _sent(self, sending: asyncio.Future[None]) -> None:
        limit = asyncio.create_task(self._clock.wait(_AT_MOST))
        try:
            await asyncio.wait({sending, limit}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
            is_sent = sending.done()
            sending.cancel()  # so that no thread begins with it any more
        if not is_sent:
            seconds = _AT_MOST.total_seconds()
            raise TimeoutError(f"the broker of Celery gave no answer within {seconds:g} s")
        sending.result()

    def _send(self, key: str, seconds: float) -> None:
        self._refuse_while_away()  # it may have waited for a thread while others found out
        self._task.apply_async((key,), countdown=seconds, retry=False)

    def _refuse_while_away(self) -> None:
        if self._error is not None and self._clock.now() < self._ask_again:
            raise self._error
