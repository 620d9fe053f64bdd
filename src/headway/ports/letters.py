"""Letters in failed queues: read without disturbing, sent again, removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from headway.core.letter import Letter
from headway.ports.bus import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedQueue:
    """A failed queue and what is in it."""

    name: str
    letters: int
    oldest: datetime | None
    newest: datetime | None
    has_store: bool = False
    """True: services that write letters here keep records in a store beside the bus."""
    being_read: bool = False
    """True: somebody else has letters of it in hand, and those are in no count."""


class Letters(Protocol):
    """Letters are kept until somebody decides; no method here lets one expire."""

    async def queues(self) -> Sequence[FailedQueue]:
        """Give every failed queue that was declared, the empty ones too, by name."""
        ...

    async def write(self, queue: str, letters: Sequence[Letter]) -> None:
        """Store letters; one with an id that is there already changes nothing."""
        ...

    async def read(self, queue: str, limit: int, after: str | None = None) -> Sequence[Letter]:
        """Give letters in the order in which they came, the next ones after a letter id.

        Fewer than `limit` means that there are no more. After a letter that is not in the queue any
        more nobody can say what comes next: LetterGoneError.
        """
        ...

    async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
        """Publish a message for a letter, and remove the letter once that is confirmed.

        False: the letter is gone. ConfigurationError: the message goes to another queue, and that
        one has the operation in its own books. A crash in between leaves both; the generation of
        the message, which must be made from the letter's id, lets them take effect once. The record
        of the failure then says REQUEUED, or MOVED if the message is for another queue than the
        letter's.
        """
        ...

    async def remove(self, queue: str, letter_ids: Sequence[str]) -> int:
        """Remove letters for good; say how many were there."""
        ...
