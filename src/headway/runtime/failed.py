"""Failed queues, as an operator works on them: look, send again, take out, remove.

Whatever goes wrong in between, a letter is in its queue until its event is stored in another one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from headway.core.errors import ConfigurationError
from headway.core.letter import Letter
from headway.core.showing import shown
from headway.core.travel import Travel
from headway.ports.bus import Message
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.ports.letters import FailedQueue
from headway.runtime.failed_names import COLLECTIONS, find_failed_queue
from headway.runtime.failed_reading import Frozen, Which, chosen, freeze, walk

_LOG = logging.getLogger("headway.operator")
_AT_ONCE = 50
"""Letters on their way at the same time: an engine may store them in one commit."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A letter that was left where it is, and why."""

    letter_id: str
    reason: str


@dataclass(slots=True, kw_only=True)
class Report:
    """What came of a change; while it runs, what has come of it so far."""

    what: Literal["requeue", "purge"]
    queue: str
    dry_run: bool
    chosen: int = 0
    """Letters that were there and meant when it began; no others are touched."""
    done: int = 0
    """Of these, requeued or purged; in a dry run, those that would be."""
    targets: dict[str, int] = field(default_factory=dict)
    """How many went to which queue."""
    skipped: list[Skipped] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """Somebody else decided upon them meanwhile."""
    missing: Sequence[str] = ()
    """Ids that were asked for and were not there."""

    @property
    def passed(self) -> int:
        """Count the letters that are dealt with, one way or another."""
        return self.done + len(self.skipped) + len(self.gone)


OnProgress = Callable[[Report], object]


class FailedQueues:
    """The failed queues of an engine.

    Args:
        engine: Where they are.
        clock: For the pace of a requeue.
        who: Who decides, for the record of every change (the log `headway.operator`).
        aliases: Other names of services, such as those of their collections.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        who: str = "a program",
        aliases: Mapping[str, str] = COLLECTIONS,
    ) -> None:
        self._letters = engine.letters
        self._places = engine.places
        self._clock = clock
        self._who = who
        self._aliases = aliases

    async def list(self) -> Sequence[FailedQueue]:
        """Give every failed queue, the empty ones too."""
        return await self._letters.queues()

    async def find(self, queue: str) -> str:
        """Give the name of the failed queue that is meant, or refuse with those that there are."""
        known = [each.name for each in await self._letters.queues()]
        return find_failed_queue(queue, known, self._aliases)

    async def inspect(
        self,
        queue: str,
        *,
        limit: int = 10,
        after: str | None = None,
        letter_id: str | None = None,
        error_type: str | None = None,
    ) -> Sequence[Letter]:
        """Give letters, the oldest first, and leave all of them where and as they are.

        `after` is the id of the last letter that was seen before: the next ones are given.
        """
        name = await self.find(queue)
        which = Which(ids=[letter_id] if letter_id is not None else (), error_type=error_type)
        found: list[Letter] = []
        passed = after is None
        async for letter in walk(self._letters, name):
            if len(found) >= limit:
                break
            if passed and which.means(letter):
                found.append(letter)
            passed = passed or letter.letter_id == after
        if not passed:
            raise ConfigurationError(
                f"after={shown(after or '')!r} is not accepted: no such letter is in {name} (any "
                "more); begin again without it"
            )
        return found

    async def export(
        self,
        queue: str,
        *,
        limit: int | None = None,
        ids: Collection[str] = (),
        error_type: str | None = None,
    ) -> AsyncIterator[Letter]:
        """Give letters one by one, each once, however many there are; they stay in the queue."""
        name = await self.find(queue)
        which = Which(ids=frozenset(ids), error_type=error_type, limit=limit)
        async for letter in chosen(self._letters, name, which):
            yield letter

    async def requeue(
        self,
        queue: str,
        *,
        limit: int | None = None,
        ids: Collection[str] = (),
        error_type: str | None = None,
        rate: float | None = None,
        target_queue: str | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Report:
        """Send the original events again, each straight to the queue that it was taken from.

        What is there at the beginning is sent, each letter once; what comes meanwhile, or comes
        back, is not touched. A letter that cannot be sent is skipped, with the reason.

        Args:
            queue: The failed queue, or its service.
            limit: At most so many, the oldest first.
            ids: Only these letters.
            error_type: Only letters whose last error was of this type.
            rate: At most so many in a second.
            target_queue: Send all of them to this queue instead.
            dry_run: Only say what would be done.
            on_progress: Called after each letter with the report so far.
        """
        if rate is not None and not rate > 0:
            raise ConfigurationError(f"rate={rate!r} is not accepted: use a number above 0")
        name = await self.find(queue)
        if target_queue in {each.name for each in await self._letters.queues()}:
            raise ConfigurationError(
                f"target_queue={target_queue!r} is not accepted: letters are kept there, and "
                "nobody would handle the event; name a queue that a service takes from"
            )
        which = Which(ids=frozenset(ids), error_type=error_type, limit=limit)
        report = Report(what="requeue", queue=name, dry_run=dry_run)
        said = which.words() + (f" target_queue={target_queue}" if target_queue else "")
        with self._recorded(report, said):
            frozen = await self._freeze(report, which)
            declared = await self._declared() if dry_run else None
            sending = _Sending(self, report, target_queue, declared, on_progress)
            await self._requeue(sending, frozen, rate)
        return report

    async def purge(
        self,
        queue: str,
        *,
        limit: int | None = None,
        ids: Collection[str] = (),
        error_type: str | None = None,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Report:
        """Remove letters for good, of those that are there at the beginning."""
        name = await self.find(queue)
        which = Which(ids=frozenset(ids), error_type=error_type, limit=limit)
        report = Report(what="purge", queue=name, dry_run=dry_run)
        with self._recorded(report, which.words()):
            frozen = await self._freeze(report, which)
