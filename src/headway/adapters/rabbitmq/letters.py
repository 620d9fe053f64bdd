"""Letters on RabbitMQ: messages in failed queues, looked through one look at a time.

A broker finds nothing by its id. To read, to requeue and to remove means to take the messages out
one after another and to hold them until they are given back. While somebody does so, others wait.

Letters come in the order in which they were written, with these exceptions: in queues of more than
`KEPT_IN_ORDER` letters, or when a process dies that reads, those that were read come later than the
others. A walk through a queue notices what happens here (LetterGoneError), and begins again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pika

from headway.adapters.rabbitmq.catalogue import Catalogue
from headway.adapters.rabbitmq.looking import Found, Look
from headway.adapters.rabbitmq.looks import Looks, Send
from headway.adapters.rabbitmq.scanning import QueueHeldError
from headway.adapters.rabbitmq.session import LostError, Session
from headway.adapters.rabbitmq.writing import SHORTEST_CASE_FILE, apart, stored, written_at
from headway.core.errors import (
    ConfigurationError,
    LetterGoneError,
    NotPublishedError,
    UnsendableError,
)
from headway.core.letter import Letter
from headway.ports.bus import Message
from headway.ports.clock import Clock
from headway.ports.letters import FailedQueue

_PEEKED_INTO = 500
"""Letters up to which the oldest is looked for: to put back many only for that takes too long."""
_PEEK_HOLDS = timedelta(seconds=30)
_SEARCHED_AT_ONCE = 500
_MARKS = 1_000

Publish = Callable[[Sequence[Message]], Awaitable[Sequence[int]]]


class RabbitLetters:
    """The failed queues of a broker.

    Args:
        parameters: Of the connection over which letters are held.
        catalogue: Names the failed queues.
        clock: For how long they are held.
        send: Publishes messages as they are, confirmed, and says whether a queue took each.
        publish: The bus's own.
    """

    def __init__(
        self,
        parameters: pika.ConnectionParameters,
        catalogue: Catalogue,
        clock: Clock,
        *,
        send: Send,
        publish: Publish,
    ) -> None:
        self._looks = Looks(Session(parameters), clock, send)
        self._catalogue = catalogue
        self._clock = clock
        self._send = send
        self._publish = publish
        self._marks: dict[tuple[str, str], tuple[int, int]] = {}
        """Of the last letters of pages: by what to see that others follow them by now."""
        self._peeked: dict[str, tuple[datetime, datetime | None]] = {}

    # Failed queues

    async def names(self) -> Sequence[str]:
        """Give every failed queue that was declared, by name."""
        found = await self._catalogue.read()
        return sorted({entry.failed for entry in found.values()})

    async def queues(self) -> Sequence[FailedQueue]:
        """Give every failed queue; the newest letter lies at the end, where nobody can look.

        The oldest is looked for in queues that are not long, and taken for the first one there.
        """
        entries = (await self._catalogue.read()).values()
        stored = {entry.failed for entry in entries if entry.has_store}
        names = sorted({entry.failed for entry in entries})
        async with self._looks.turn:
            found = [await self._looks.surely(partial(self._queue, name)) for name in names]
        return [replace(each, has_store=each.name in stored) for each in found]

    async def counts(self, names: Sequence[str]) -> dict[str, int]:
        """Count letters, those in hand here too; those that others hold nobody can count."""
        async with self._looks.turn:
            surely, count = self._looks.surely, self._looks.count
            return {name: await surely(partial(count, name)) for name in names}

    async def _queue(self, name: str) -> FailedQueue:
        number = await self._looks.count(name)
        being_read = await self._looks.is_held(name)
        oldest = await self._oldest(name, number) if number else None
        return FailedQueue(
            name=name, letters=number, oldest=oldest, newest=None, being_read=being_read
        )

    async def _oldest(self, name: str, number: int) -> datetime | None:
        look, now = self._looks.at(name), self._clock.now()
        if look is not None:
            return None if look.oldest is None else written_at(look.oldest)
        seen, oldest = self._peeked.get(name, (now - 2 * _PEEK_HOLDS, None))
        if number > _PEEKED_INTO or now - seen < _PEEK_HOLDS:
            return oldest
        try:
            peek = await self._looks.begin(name, patience=0.0)
        except QueueHeldError:
            return oldest
        if peek is None:
            return None
        try:
            found = await self._looks.more(peek, 1)
        except ConfigurationError:  # its log line says why; the number of letters is known
            found = []
        finally:
            await self._looks.give_back(peek)
        oldest = written_at(found[0].letter) if found else None
        self._peeked[name] = now, oldest
        return oldest

    # Writing

    async def write(self, queue: str, letters: Sequence[Letter]) -> None:
        """Store letters. One that is there already is there twice then, until somebody reads it."""
        try:
            routed = await self._send([stored(queue, letter) for letter in letters])
        except UnsendableError:
            if len(letters) > 1:
                for letter in letters:
                    await self.write(queue, [letter])
                return
            routed = await self._send([apart(queue, letters[0], SHORTEST_CASE_FILE)])
        if not all(routed):
            raise NotPublishedError(
                f"no queue took a letter for {queue!r}: the failed queue was deleted; start its "
                "service again, which declares it"
            )

    # Reading

    async def read(self, queue: str, limit: int, after: str | None = None) -> Sequence[Letter]:
        if limit <= 0:
            return []
        async with self._looks.turn:
            return await self._looks.surely(partial(self._read, queue, limit, after))

    async def _read(self, queue: str, limit: int, after: str | None) -> Sequence[Letter]:
        looks = self._looks
        look = looks.at(queue)
        if look is None or after is None or look.last != after:
            look = await looks.start(queue)
            if after is not None and (look is None or not await self._skip(look, after)):
                await looks.end()
                raise LetterGoneError(queue, after)
        if look is None:
            return []
        look.last = None  # until this has come to its end nobody can go on from here
        page: list[Found] = []
        while len(page) < limit and (more := await looks.more(look, limit - len(page))):
            page += more
        if page:
            look.last = page[-1].letter.letter_id
            self._mark(queue, page[-1])
        if len(page) < limit:
            await looks.end()
        return [each.letter for each in page]

    async def _skip(self, look: Look, after: str) -> bool:
        """Go on to a letter; say whether what follows it now is what followed it before."""
        while more := await self._looks.more(look, 1):
            if more[0].letter.letter_id == after:
                mark = self._order(look.queue, more[0])
                return self._marks.get((look.queue, after), mark) == mark
        return False

    def _mark(self, queue: str, last: Found) -> None:
        key = queue, last.letter.letter_id
        self._marks.pop(key, None)
        self._marks[key] = self._order(queue, last)
        if len(self._marks) > _MARKS:
            del self._marks[next(iter(self._marks))]

    def _order(self, queue: str, found: Found) -> tuple[int, int]:
        """Give what changes when the order does, and when another process renewed the letter."""
        return self._looks.disorders[queue], found.renewed - self._looks.renewals[queue]

    async def search(self, queue: str, operations: Collection[str]) -> set[str]:
        """Give those of the operations that have a letter in a queue, as it is when this begins.

        One pass: nothing else is read here meanwhile, and what comes or goes elsewhere does not
        make it start again. It ends with the last letter, or when all of them are found.
        """
        async with self._looks.turn:
            return await self._looks.surely(partial(self._search, queue, operations))

    async def _search(self, queue: str, operations: Collection[str]) -> set[str]:
        looks = self._looks
        look = await looks.start(queue)
        left, found = set(operations), set[str]()
        while look is not None and left and (more := await looks.more(look, _SEARCHED_AT_ONCE)):
            seen = {each.letter.operation for each in more} & left
            left -= seen
            found |= seen
        await looks.end()
        return found

    # Deciding

    async def requeue(self, queue: str, letter_id: str, message: Message) -> bool:
        look = await self._reserve(queue, letter_id)
        if look is None:
            return False
        was_lost = False
        try:
            (takers,) = await self._publish([message])
            if not takers:
                raise ConfigurationError(f"queue={message.queue!r} is not there: it was deleted")
            try:
                await self._looks.settle(look, look.take_out([letter_id]))
            except LostError:
                was_lost = True
        finally:
            look.touched = self._clock.now()
            look.deciding.pop(letter_id).set()
        self._peeked.pop(queue, None)
        if was_lost:
            # It is sent. If the letter does not come back, somebody else has seen to it.
            with suppress(ConnectionError):
                await self.remove(queue, [letter_id])
        return True

    async def _reserve(self, queue: str, letter_id: str) -> Look | None:
        async with self._undecided(queue, [letter_id]):
            look = await self._looks.surely(partial(self._looks.find, queue, [letter_id]))
            if look is None or not look.has(letter_id):
                return None
            look.deciding[letter_id] = asyncio.Event()
            return look

    async def remove(self, queue: str, letter_ids: Sequence[str]) -> int:
        if not letter_ids:
            return 0
        async with self._undecided(queue, letter_ids):
            self._peeked.pop(queue, None)
            return await self._looks.surely(partial(self._remove, queue, letter_ids))

    async def _remove(self, queue: str, letter_ids: Sequence[str]) -> int:
        look = await self._looks.find(queue, letter_ids)
        if look is None:
            return 0
        messages = look.take_out(letter_ids)
        await self._looks.settle(look, messages)
        return len(messages)

    @asynccontextmanager
    async def _undecided(self, queue: str, letter_ids: Sequence[str]) -> AsyncIterator[None]:
        """Have a turn while nobody else here decides about any of these letters."""
        while True:
            async with self._looks.turn:
                look = self._looks.at(queue)
                deciding = look.deciding if look is not None else {}
                busy = [deciding[each] for each in letter_ids if each in deciding]
                if not busy:
                    yield
                    return
            await busy[0].wait()

    async def close(self) -> None:
        """Give back what is in hand and let go."""
        await self._looks.close()
