"""The real clock."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from headway.ports.clock import ClockReading

_LOOK_EVERY = 1.0
# On macOS CLOCK_MONOTONIC counts the time asleep, which time.monotonic does not.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _wall() -> float:
    return time.time()


def _steady() -> float:
    """Give seconds since boot, with those in which the machine slept."""
    return time.monotonic() if _SINCE_BOOT is None else time.clock_gettime(_SINCE_BOOT)


@cache
def _boot() -> str:
    """Name this boot; empty where the system gives it no name."""
    try:
        if sys.platform == "darwin":
            command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            told = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (ours)
            return told.stdout.strip()
        return _BOOT_ID.read_text().strip()
    except (OSError, subprocess.SubprocessError):
        return ""


class SystemClock:
    """Wall time that never goes backwards.

    It is carried forward by the steady clock, which also runs while the machine sleeps. If the
    machine's clock is set forward, `now` follows: documents are shared with other machines, which
    have the right time. If it is set back, `now` does not.

    Args:
        wall: Reads the wall clock; a test can set it.
        steady: Reads the seconds since boot.
        boot: Names this boot.
    """

    def __init__(
        self,
        wall: Callable[[], float] = _wall,
        steady: Callable[[], float] = _steady,
        boot: Callable[[], str] = _boot,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._boot = boot
        self._looked = steady()
        self._offset = wall() - self._looked

    def now(self) -> datetime:
        steady = self._steady()
        if steady - self._looked > _LOOK_EVERY:
            self._follow_wall(steady)
        return datetime.fromtimestamp(steady + self._offset, UTC)

    def read(self) -> ClockReading:
        now = self.now()
        steady = self._steady()
        return ClockReading(now, self._wall(), steady, self._boot())

    def sleep(self, delay: timedelta) -> None:
        time.sleep(delay.total_seconds())

    async def wait(self, delay: timedelta) -> None:
        await asyncio.sleep(delay.total_seconds())

    def _follow_wall(self, steady: float) -> None:
        self._looked = steady
        self._offset = max(self._offset, self._wall() - steady)


CLOCK = SystemClock()
