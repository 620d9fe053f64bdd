"""Have keys looked at later by a task of Celery."""

import asyncio
from datetime import timedelta
from typing import Any


class CeleryScheduler:
    """Sends a task with the key, to be run after a delay. The broker may be Redis or RabbitMQ.

    A broker that is away is said at once, and not tried again: the index of due keys has the key
    already, and whoever offered the result must not wait for two engines.
    """

    def __init__(self, task: Any) -> None:
        self._task = task

    async def schedule(self, key: str, delay: timedelta) -> None:
        await asyncio.to_thread(self._send, key, delay.total_seconds())

    def _send(self, key: str, seconds: float) -> None:
        self._task.apply_async((key,), countdown=seconds, retry=False)
