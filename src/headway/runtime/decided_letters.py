"""Letters on a bus, whose decisions reach the records of a store.

Two systems, so the order is what counts. A letter is requeued by the bus first (its event
published and confirmed, then the letter removed), and the record follows:

- Killed before the letter is removed: event and letter are both there. Whoever requeues it again
  sends the same generation, which takes effect once.
- Killed before the record follows: the event is on its way, and the record still says FAILED. When
  the event ends, the store finds the letter's name in its generation and corrects the record. If
  the record still held the letter, housekeeping writes it once more: requeued again, it is the same
  generation; purged, it is gone.

So a record says REQUEUED only of what was sent. A purge goes the other way round, record first:

- Killed in between: the letter is still there, and can be purged, or requeued, again. The other
  way round a record would say FAILED for ever, with no letter that anybody could decide about.

Who requeues and who purges the same letter at the same time cannot both succeed: the bus removes
it once, and whoever requeued it has the last word on the record.
"""

from collections.abc import Sequence

from headway.core.letter import Letter
from headway.ports.bus import Message
from headway.ports.letters import FailedQueue, Letters
from headway.ports.records import Decisions


class DecidedLetters:
    """The letters of a bus with a store beside it."""

    def __init__(self, letters: Letters, decisions: Decisions) -> None:
        self._letters = letters
        self._decisions = decisions

    async def queues(self) -> Sequence[FailedQueue]:
        return await self._letters.queues()

    async def write(self, queue: str, letters: Sequence[Letter]) -> None:
        await self._letters.write(queue, letters)

    async def read(self, queue: str, limit: int, after: str | None = None) -> Sequence[Letter]:
        return await self._letters.read(queue, limit, after)

    async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
        if not await self._letters.requeue(queue, letter_id, message):
            return False
        await self._decisions.requeued(queue, letter_id, message.queue)
        return True

    async def remove(self, queue: str, letter_ids: Sequence[str]) -> int:
        if not letter_ids:
            return 0
        await self._decisions.purged(queue, letter_ids)
        return await self._letters.remove(queue, letter_ids)
