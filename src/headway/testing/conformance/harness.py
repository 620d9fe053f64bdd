"""What an engine's own tests have to give to the suites: storage, time, and processes that die."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from enum import StrEnum
from typing import Any
from unittest import SkipTest

from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.ports.records import DoneRecord


class Capability(StrEnum):
    """What some engines cannot give; tests of it are skipped, and the skip says which."""

    STRICT_ORDER = "gives what is due in the exact order in which it became due"
    OLD_PLACE = "puts what is handed back into its old place in the queue"
    FIRST_SEEN = "keeps the time of the first taking, even when the taker dies"
    BEGINS = "keeps the begins of suspects"
    PARKING = "finds parked events again to resume them (bus.finds_parked)"
    ATOMIC_PUBLISH = "stores all that is published together, or nothing (bus.atomic_publish)"
    ONE_COMMIT = "puts effects, record, outgoing events and settlement into one commit"
    ACCEPTED = "counts what it accepts independently of where it is"
    RECORDS = "remembers what was done, and takes writes and bodies"
    BOOKS = "knows that an operation which came back into a queue has not ended there"
    LOOKING = "finds an operation that waits in a queue by its name"
    NEWEST_LETTER = "knows when the newest letter of a queue was written"
    OLDEST_EVENT = "knows since when the oldest event of a queue is ready"
    LEASED = "counts what workers have in hand, and what is delayed, by queue"
    WORKERS = "knows how many workers are alive"
    UNSENT_RECORDS = "has records that still hold something to be sent (harness.keep_record)"
    OWN_TABLES = "gives bodies something to write to (harness.write_row, harness.rows)"
    LOCKS = "lets others keep single documents locked (harness.locking)"
    BY_HAND = "lets a test remove an item by hand (harness.remove_by_hand)"


class EngineHarness(ABC):
    """One storage, empty at first, and engines that come and go on it like worker processes."""

    clock: Clock
    """The one that the engines were given."""
    moment: timedelta = timedelta(seconds=1)
    """The unit of time of the suites. With a real clock make it short, and still long enough for
    the engine to notice something: tests let up to about 20 of them pass."""
    lacks: frozenset[Capability] = frozenset()
    """What this engine cannot give."""

    @abstractmethod
    async def open_engine(self) -> Engine:
        """Give an engine on the same storage as all the others, as a new process would have it.

        It has declared no queues: the tests do that.
        """

    @abstractmethod
    async def kill(self, engine: Engine) -> None:
        """Let the process of an engine die without a word.

        When this returns, what it had taken has come back or comes back by itself within ten
        moments. The object can still be called, as by a process that only believes to be alive.
        If the harness needs a process of its own for this, it closes that one again.
        """

    async def pass_time(self, delay: timedelta) -> None:
        """Let time pass while other tasks go on."""
        await self.clock.wait(delay)

    async def keep_record(self, record: DoneRecord) -> None:
        """Store a record as a commit does whose outgoing events and letter are not sent yet."""
        raise NotImplementedError(f"{type(self).__name__}.keep_record({record.key!r})")

    def write_row(self, session: Any, text: str) -> Awaitable[object] | None:
        """Write a row into a table of the user's own, by what the engine gives to a body.

        Where statements have to be awaited, give what does so.
        """
        raise NotImplementedError(f"{type(self).__name__}.write_row({session!r}, {text!r})")

    async def rows(self) -> list[str]:
        """Give the rows that `write_row` wrote and that are committed, in order."""
        raise NotImplementedError(f"{type(self).__name__}.rows()")

    def locking(self, collection: str, one: str) -> AbstractAsyncContextManager[None]:
        """Keep a document locked inside the block, as a transaction of another program does."""
        raise NotImplementedError(f"{type(self).__name__}.locking({collection!r}, {one!r})")

    async def remove_by_hand(self, operation: str) -> None:
        """Remove an operation's item from its queue behind the engine's back."""
        raise NotImplementedError(f"{type(self).__name__}.remove_by_hand({operation!r})")

    async def set_clock(self, step: timedelta) -> None:
        """Set the wall clock of the engine's machine forward or back, as a person or NTP does.

        Engines that are open notice it as running processes do; those opened later start after it.
        """
        raise SkipTest(f"{type(self).__name__} has no wall clock that a test can set by {step}")

    def needs(self, *capabilities: Capability) -> None:
        """Skip the running test if the engine lacks something that it needs."""
        for capability in capabilities:
            if capability in self.lacks:
                raise SkipTest(f"{type(self).__name__} lacks {capability.name}: {capability}")
