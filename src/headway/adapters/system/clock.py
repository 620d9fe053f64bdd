"""The real clock."""

import asyncio
import time
from datetime import UTC, datetime, timedelta


class SystemClock:
    """Wall time that is read once and then carried forward by the monotonic clock.

    So the time of one process never jumps when somebody sets the machine's clock.
    """

    def __init__(self) -> None:
        self._started = datetime.now(UTC)
        self._origin = time.monotonic()

    def now(self) -> datetime:
        return self._started + timedelta(seconds=time.monotonic() - self._origin)

    def sleep(self, delay: timedelta) -> None:
        time.sleep(delay.total_seconds())

    async def wait(self, delay: timedelta) -> None:
        await asyncio.sleep(delay.total_seconds())
