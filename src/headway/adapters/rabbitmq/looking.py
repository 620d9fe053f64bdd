"""A running look through a failed queue: what was met, what is in hand, where it goes on.

Everything here runs on the event loop; what has to be asked of the broker is `Scan`'s.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from headway.adapters.rabbitmq.contents import Shown, numbered, show
from headway.adapters.rabbitmq.scanning import Page, Scan, Taken
from headway.core.letter import Letter


class Held(NamedTuple):
    """A letter in hand. Its text is not kept: there may be very many."""

    page: Page
    tag: int
    shown: tuple[bool, bool, bytes]


class Found(NamedTuple):
    """A letter that is met for the first time in this look."""

    letter: Letter
    renewed: int
    taken: Taken


class Settling:
    """Messages that are removed together."""

    def __init__(self) -> None:
        self.messages: list[tuple[Page, int]] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Look:
    """Keeps the account of one scan."""

    def __init__(self, scan: Scan, begun: datetime, linger: timedelta) -> None:
        self.scan = scan
        self.linger = linger
        """How long it may stay idle before everything is given back."""
        self.touched = begun
        self.renews = True
        """It publishes anew what has come back before; False: the broker takes no messages."""
        self.oldest: Letter | None = None
        """The first letter of the queue."""
        self.last: str | None = None
        """The id after which `read` goes on; None: it cannot."""
        self.ahead: deque[Found] = deque()
        """Taken and not asked for yet."""
        self.deciding: dict[str, asyncio.Event] = {}
        """Letters that are being requeued: until that is over nothing can be given back."""
        self.settling: Settling | None = None
        """Not sent yet: whoever has something to remove may join."""
        self._held: dict[str, Held] = {}
        self._gone: set[str] = set()

    @property
    def queue(self) -> str:
        return self.scan.queue

    def has(self, letter_id: str) -> bool:
        held = self._held.get(letter_id)
        return held is not None and bool(held.page.channel.is_open)

    def meet(self, taken: Iterable[Taken]) -> tuple[list[Found], list[tuple[Page, int]]]:
        """Give the letters that are new, and the messages that are only copies of others."""
        found: list[Found] = []
        copies: list[tuple[Page, int]] = []
        for each in taken:
            shown = show(self.queue, each.properties, each.body)
            letter = self._name(shown)
            if letter is None:
                copies.append((each.page, each.tag))
                continue
            found.append(Found(letter, shown.renewed, each))
            self._held[letter.letter_id] = Held(
                each.page, each.tag, (shown.is_letter, shown.is_named, shown.digest)
            )
            self.oldest = self.oldest or letter
        return found, copies

    def _name(self, shown: Shown) -> Letter | None:
        """Give a letter under a name of its own; None: it is a copy of another one."""
        letter, number = shown.letter, 1
        while True:
            if letter.letter_id in self._gone and shown.is_letter:
                return None
            other = self._held.get(letter.letter_id)
            if other is None:
                return letter
            if _is_copy(shown, other):
                return None
            number += 1
            letter = numbered(shown.letter, number)

    def come_later(self) -> None:
        """What is met from now on came after the beginning: perhaps a letter written once more."""
        self._gone.clear()

    def take_out(self, letter_ids: Sequence[str]) -> list[tuple[Page, int]]:
        """Give the messages of letters that are to be removed."""
        there = [each for each in dict.fromkeys(letter_ids) if self.has(each)]
        self._gone.update(there)
        return [self._held.pop(each)[:2] for each in there]

    async def quiet(self) -> None:
        """Wait until nothing is being decided."""
        while self.deciding:
            await next(iter(self.deciding.values())).wait()


def _is_copy(shown: Shown, other: Held) -> bool:
    is_letter, is_named, digest = other.shown
    if shown.is_letter and is_letter:
        return True
    return shown.is_named and is_named and shown.digest == digest
