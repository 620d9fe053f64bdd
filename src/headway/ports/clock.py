"""Time."""

from datetime import datetime, timedelta
from typing import NamedTuple, Protocol


class ClockReading(NamedTuple):
    """All clocks of a machine, read at one instant."""

    now: datetime
    """What `Clock.now` gives."""
    wall: float
    """The machine's wall clock: seconds since 1970, right or wrong, as it is set just now."""
    steady: float
    """Seconds that pass evenly, also while the machine sleeps; setting the wall clock does not
    change them. All processes of one boot count from the same instant."""
    boot: str
    """Names the boot of the machine since which `steady` counts."""


class Clock(Protocol):
    """Tells the time and waits. Nothing else in Headway does either."""

    def now(self) -> datetime:
        """Give the present instant, aware and in UTC; it never goes backwards in one process."""
        ...

    def read(self) -> ClockReading:
        """Read all clocks at once, for times that must outlive a step of the wall clock."""
        ...

    def sleep(self, delay: timedelta) -> None:
        """Block the calling thread for `delay`."""
        ...

    async def wait(self, delay: timedelta) -> None:
        """Suspend the calling task for `delay`; other tasks go on."""
        ...
