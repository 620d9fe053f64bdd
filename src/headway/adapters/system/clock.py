"""The real clock."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

_LOOK_EVERY = 1.0
_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", None)


def _steady() -> float:
    """Give seconds that only grow, on Linux those of its sleep included."""
    return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)


class SystemClock:
    """Wall time that never goes backwards.

    It is carried forward by the steady clock, which also runs while the machine sleeps. If the
    machine's clock is set forward it follows: processes that share a file must agree on what is
    due. If it is set back it does not.
    """

    def __init__(self) -> None:
        self._offset = time.time() - _steady()
        self._looked = _steady()

    def now(self) -> datetime:
        steady = _steady()
        if steady - self._looked > _LOOK_EVERY:
            self._looked = steady
            self._offset = max(self._offset, time.time() - steady)
        return datetime.fromtimestamp(steady + self._offset, UTC)

    def sleep(self, delay: timedelta) -> None:
        time.sleep(delay.total_seconds())

    async def wait(self, delay: timedelta) -> None:
        await asyncio.sleep(delay.total_seconds())
