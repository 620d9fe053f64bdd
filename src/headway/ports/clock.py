"""Time."""

from datetime import datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits. Nothing else in Headway does either."""

    def now(self) -> datetime:
        """Give the present instant, aware and in UTC; it never goes backwards in one process."""
        ...

    def sleep(self, delay: timedelta) -> None:
        """Block the calling thread for `delay`."""
        ...

    async def wait(self, delay: timedelta) -> None:
        """Suspend the calling task for `delay`; other tasks go on."""
        ...
