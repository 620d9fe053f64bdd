"""How long a lease has gone without a renewal, by the steady clock of the process that watches it.

A lease in a store on another machine cannot be judged by that machine's wall clock: when it is
set, every lease would be over at once, or none for a year. So a process that wants a
lease of another one watches it, and takes it over when it saw no renewal for the whole lease.
"""

from collections.abc import Hashable
from datetime import timedelta


class LeaseWatch:
    """What one process has seen of the leases of others."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Hashable, float]] = {}

    def unrenewed(self, name: str, renewal: Hashable, steady: float) -> timedelta:
        """Say for how long `renewal` has been the latest one of a lease.

        Args:
            name: Which lease it is.
            renewal: Differs for every holder and renewal.
            steady: Seconds on the steady clock of this process.
        """
        before = self._seen.get(name)
        if before is None or before[0] != renewal:
            self._seen[name] = renewal, steady
            return timedelta()
        return timedelta(seconds=steady - before[1])

    def forget(self, name: str) -> None:
        """Watch a lease no more."""
        self._seen.pop(name, None)
