"""Failed queues, as an operator works on them: look, send again, take a copy, remove.

Whatever goes wrong in between, a letter stays in its queue until its event is stored in another.
"""

import logging
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from headway.core.errors import ConfigurationError, LetterGoneError
from headway.core.letter import Letter
from headway.core.showing import shown
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.ports.letters import FailedQueue
from headway.runtime.failed_names import COLLECTIONS, find_failed_queue
from headway.runtime.failed_reading import Which, chosen, freeze, walk
from headway.runtime.failed_report import OnProgress, Report
from headway.runtime.failed_sending import Sending
from headway.runtime.failed_superseded import find_superseded

_LOG = logging.getLogger("headway.operator")
_REMOVED_AT_ONCE = 100
_ASKED_AT_ONCE = 100


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
        self._documents = engine.documents
        self._records = engine.records
        self._places = engine.places
        self._desk = None if engine.sweeping is None else engine.sweeping.desk
        self.knows_superseded = engine.has_store
        """False: without a store nobody can tell which letters are superseded."""
        self._clock = clock
        self._who = who
        self._aliases = aliases

    async def list(self) -> Sequence[FailedQueue]:
        """Give every failed queue, the empty ones too."""
        return await self._letters.queues()

    async def find(self, queue: str) -> str:
        """Give the name of the failed queue that is meant, or refuse with those that there are."""
        return (await self._find(queue)).name

    async def _find(self, queue: str) -> FailedQueue:
        known = {each.name: each for each in await self._letters.queues()}
        return known[find_failed_queue(queue, list(known), self._aliases)]

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
        ids = frozenset(() if letter_id is None else (letter_id,))
        which = Which(ids=ids, error_type=error_type, limit=limit)
        try:
            return [letter async for letter in chosen(self._letters, name, which, after)]
        except LetterGoneError:
            raise ConfigurationError(
                f"after={shown(after or '')!r} is not accepted: no such letter is in {name} (any "
                "more); begin again without it"
            ) from None

    async def superseded(self, letters: Sequence[Letter]) -> Mapping[str, str]:
        """Give the ids of those that are superseded, each with the reason.

        That is: the same work was sent anew and done, or each of their documents has been processed
        since, or another operation has begun to work on it, or it is gone.
        """
        return await find_superseded(self._documents, self._records, letters, self._desk)

    async def count_superseded(self, queue: str) -> int:
        """Count the letters of a queue that are superseded; every letter is read for it."""
        count = 0
        page: list[Letter] = []
        async for letter in walk(self._letters, await self.find(queue)):
            page.append(letter)
            if len(page) == _ASKED_AT_ONCE:
                count += len(await self.superseded(page))
                page = []
        return count + len(await self.superseded(page))

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
        superseded: bool = False,
        without_store: bool = False,
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
            superseded: Send those too that are superseded. A service that finds all documents of
                an event processed settles it without running it, all the same.
            without_store: Send them though their services keep records in a store and this engine
                has none: what is superseded is sent too, and may take effect twice.
            dry_run: Only say what would be done. What goes to another queue than before may still
                be refused there: see `Report.moved`.
            on_progress: Called after each letter with the report so far.
        """
        if rate is not None and not rate > 0:
            raise ConfigurationError(f"rate={rate!r} is not accepted: use a number above 0")
        await self._check_target(target_queue)
        name = await self._for_a_change(queue, without_store=without_store)
        report = Report(what="requeue", queue=name, dry_run=dry_run)
        which = Which(ids=frozenset(ids), error_type=error_type, limit=limit)
        said = which.words() + (f" target_queue={target_queue}" if target_queue else "")
        said += " superseded" * superseded + " without_store" * without_store
        with self._recorded(report, said):
            await self._freeze(report, which)
            sending = Sending(
                self._letters,
                self._clock,
                report,
                target_queue=target_queue,
                leave=None if superseded or not self.knows_superseded else self.superseded,
                declared=await self._declared() if dry_run else (),
                rate=None if dry_run else rate,
                on_progress=on_progress,
            )
            await sending.send(report.chosen)
        return report

    async def purge(
        self,
        queue: str,
        *,
        limit: int | None = None,
        ids: Collection[str] = (),
        error_type: str | None = None,
        without_store: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Report:
        """Remove letters for good, of those that are there at the beginning.

        `without_store`: though their services keep records in a store and this engine has none. It
        will say for ever that they failed.
        """
        name = await self._for_a_change(queue, without_store=without_store)
        report = Report(what="purge", queue=name, dry_run=dry_run)
        which = Which(ids=frozenset(ids), error_type=error_type, limit=limit)
        with self._recorded(report, which.words() + " without_store" * without_store):
            await self._freeze(report, which)
            for start in range(0, len(report.chosen), _REMOVED_AT_ONCE):
                some = report.chosen[start : start + _REMOVED_AT_ONCE]
                removed = len(some)
                if not dry_run:
                    removed = await self._letters.remove(report.queue, some)
                report.done += removed
                report.gone += len(some) - removed
                if on_progress is not None:
                    on_progress(report)
        return report

    async def _for_a_change(self, queue: str, *, without_store: bool) -> str:
        """Give the name of a queue; refuse one whose records could not follow the change."""
        found = await self._find(queue)
        if found.has_store and not self.knows_superseded and not without_store:
            raise ConfigurationError(
                f"letters of {found.name} cannot be decided about without the store of their "
                "services: what was done since would be done twice, and what is removed would be "
                "in no books; set HEADWAY_STORE as for the workers, or mean it: --without-store "
                "(in a program without_store=True)"
            )
        return found.name

    async def _freeze(self, report: Report, which: Which) -> None:
        report.chosen = await freeze(self._letters, report.queue, which)
        if which.limit is None and which.error_type is None:
            report.missing = sorted(frozenset(which.ids).difference(report.chosen))

    async def _declared(self) -> Sequence[str]:
        return [each.queue for each in (await self._places.depths()).queues]

    async def _check_target(self, target: str | None) -> None:
        if target in {each.name for each in await self._letters.queues()}:
            raise ConfigurationError(
                f"target_queue={target!r} is not accepted: letters are kept there, and nobody "
                "would handle the event; name a queue that a service takes from"
            )

    @contextmanager
    def _recorded(self, report: Report, which: str) -> Iterator[None]:
        """Record a change when it is over, however it ended."""
        ended = "stopped by an error or by hand"
        try:
            yield
            ended = "complete"
        finally:
            if not report.dry_run:
                _LOG.info(
                    "%s of %s by %s: %d of %d %s (%s), %s",
                    report.what,
                    report.queue,
                    shown(self._who),
                    report.done,
                    len(report.chosen),
                    "letter" if len(report.chosen) == 1 else "letters",
                    shown(which),
                    ended,
                    extra={
                        "operator": self._who,
                        "change": report.what,
                        "failed_queue": report.queue,
                        "letters": report.done,
                        "chosen": len(report.chosen),
                        "skipped": len(report.skipped),
                        "filters": which,
                    },
                )
