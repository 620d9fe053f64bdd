"""The failed queues of the memory engine."""

import itertools
from collections.abc import Sequence
from datetime import datetime

from headway.adapters.memory.state import State
from headway.core.errors import ConfigurationError, LetterGoneError
from headway.core.letter import Letter
from headway.ports.bus import Message
from headway.ports.clock import Clock
from headway.ports.letters import FailedQueue
from headway.ports.records import Ended


class MemoryLetters:
    """Letters in the order in which they came."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    async def queues(self) -> Sequence[FailedQueue]:
        return [
            _summed_up(name, list(letters.values()))
            for name, letters in sorted(self._state.letters.items())
        ]

    async def write(self, queue: str, letters: Sequence[Letter]) -> None:
        for letter in letters:
            self._state.letters.setdefault(queue, {}).setdefault(letter.letter_id, letter)

    async def read(self, queue: str, limit: int, after: str | None = None) -> Sequence[Letter]:
        there = self._state.letters.get(queue, {})
        letters = iter(there.values())
        if after is not None:
            if after not in there:
                raise LetterGoneError(queue, after)
            letters = itertools.dropwhile(lambda letter: letter.letter_id != after, letters)
            next(letters, None)
        return list(itertools.islice(letters, limit))

    async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
        letter = self._state.letters.get(queue, {}).get(letter_id)
        if letter is None:
            return False
        ended = Ended.REQUEUED if message.queue == letter.queue else Ended.MOVED
        if ended is Ended.MOVED and letter.queue:
            self._refuse_what_is_there(message)
        for name in self._state.routes(message):
            self._state.put(name, message.body, message.travel, self._clock.now())
        return self._state.decided(queue, letter_id, ended)

    async def remove(self, queue: str, letter_ids: Sequence[str]) -> int:
        return sum(self._state.decided(queue, one, Ended.PURGED) for one in letter_ids)

    def _refuse_what_is_there(self, message: Message) -> None:
        """Nobody could tell two ways of one operation through one queue apart.

        What was moved away from a queue may come back to it.
        """
        state, operation = self._state, message.travel.operation
        owned = (message.queue or "", operation)
        records = (kept.record for kept in state.records.values())
        ends = [each.ended for each in records if (each.queue, each.operation) == owned]
        letters = (letter for its in state.letters.values() for letter in its.values())
        is_there = any(item.owned == owned for item in state.items.values()) or any(
            (letter.queue, letter.operation) == owned for letter in letters
        )
        if owned in state.accepted and (is_there or ends[-1:] != [Ended.MOVED]):
            raise ConfigurationError(
                f"queue={message.queue!r} is not accepted for this letter: operation "
                f"{operation!r} is in that queue's books already; requeue it to its own queue"
            )


def _summed_up(name: str, letters: Sequence[Letter]) -> FailedQueue:
    times = [datetime.fromisoformat(letter.timestamp) for letter in letters]
    return FailedQueue(
        name=name,
        letters=len(letters),
        oldest=min(times, default=None),
        newest=max(times, default=None),
    )
