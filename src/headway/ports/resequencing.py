"""What a resequencer needs besides the sequences: who looks at keys later, and who is told."""

from datetime import timedelta
from typing import Protocol

from headway.core.sequence_facts import SequenceFact


class LookScheduler(Protocol):
    """Has keys looked at later. It may forget: the index of due keys is what counts."""

    async def schedule(self, key: str, delay: timedelta) -> None:
        """Schedule a check of the key after a delay; raises if it cannot be scheduled."""
        ...


class SequenceWatcher(Protocol):
    """Hears facts. It must be quick, and it must not raise: the work goes on either way."""

    def tell(self, fact: SequenceFact) -> None: ...
