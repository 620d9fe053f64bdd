"""Failed queues, as an operator works on them: look, send again, take a copy, remove.

Whatever goes wrong in between, a letter stays in its queue until its event is stored in another.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial

from headway.core.errors import ConfigurationError, LetterGoneError
from headway.core.ids import Prefixes, checked_ids
from headway.core.letter import Letter
from headway.core.showing import shown
from headway.core.writes import Document
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.ports.history import newest_first
from headway.ports.letters import FailedQueue
from headway.runtime.failed_names import COLLECTIONS, find_failed_queue
from headway.runtime.failed_reading import Which, chosen, freeze, walk
from headway.runtime.failed_report import OnProgress, Report, Skipped
from headway.runtime.failed_sending import LeaveOut, Sending
from headway.runtime.failed_superseded import find_processed, find_superseded
from headway.runtime.history import Change, Operator, Subject, checked_reason, read_history

_REMOVED_AT_ONCE = 100
_ASKED_AT_ONCE = 100


class FailedQueues:
    """The failed queues of an engine.

    Args:
        engine: Where they are.
        clock: For the pace of a requeue.
        chance: Names changes in the history.
        who: Who decides, for the history.
        aliases: Other names of services, such as those of their collections.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        chance: Chance,
        *,
        who: str = "a program",
        aliases: Mapping[str, str] = COLLECTIONS,
    ) -> None:
        self._letters = engine.letters
        self._documents = engine.documents
        self._records = engine.records
        self._places = engine.places
        self._takers = engine.unrouted.takers
        self._operator = Operator(who, engine.history, clock, chance)
        self._history_without_store = engine.history_without_store
        self.knows_superseded = engine.has_store
        """False: without a store nobody can tell which letters are superseded."""
        self._clock = clock
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
        ids = None if letter_id is None else (letter_id,)
        which = Which(ids=ids, error_type=error_type, limit=limit)
        try:
            return [letter async for letter in chosen(self._letters, name, which, after)]
        except LetterGoneError:
            raise ConfigurationError(
                f"after={shown(after or '')!r} is not accepted: no such letter is in {name} (any "
                "more); begin again without it"
            ) from None

    async def complete(
        self, queue: str, typed: Sequence[str], *, name: str = "--id"
    ) -> Sequence[str]:
        """Give the full ids for what a person typed: ids, or at least four characters of one.

        What fits no dead letter stays as it is. Several that fit are refused, with their ids.
        `name` is what they were typed as, for the error.
        """
        checked = checked_ids(name, typed) or ()
        prefixes = Prefixes(checked)
        async for letter in walk(self._letters, await self.find(queue)):
            prefixes.meet(letter.letter_id)
            if prefixes.are_exact:
                break
        return prefixes.completed(name)

    async def superseded(self, letters: Sequence[Letter]) -> Mapping[str, str]:
        """Give the ids of those that are superseded, each with the reason.

        That is: the same work was sent anew and done, or each of their documents has been processed
        since, or another operation has begun to work on it, or it is gone.
        """
        history = self._operator.history if self.knows_superseded else None
        return await find_superseded(self._documents, self._records, letters, history)

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
        ids: Collection[str] | None = None,
        error_type: str | None = None,
    ) -> AsyncIterator[Letter]:
        """Give dead letters one by one, each once; they stay in the queue.

        `ids`: exactly these. None: any; an empty list is refused.
        """
        which = Which(ids=ids, error_type=error_type, limit=limit)
        name = await self.find(queue)
        async for letter in chosen(self._letters, name, which):
            yield letter

    async def requeue(
        self,
        queue: str,
        *,
        limit: int | None = None,
        ids: Collection[str] | None = None,
        error_type: str | None = None,
        rate: float | None = None,
        target_queue: str | None = None,
        superseded: bool = False,
        without_store: bool = False,
        reason: str = "",
        dry_run: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Report:
        """Send the original events again, each straight to the queue that it was taken from.

        What is there at the beginning is sent, each letter once; what comes meanwhile, or comes
        back, is not touched. A letter that cannot be sent is skipped, with the reason.

        Args:
            queue: The failed queue, or its service.
            limit: At most so many, the oldest first.
            ids: Exactly these dead letters. None: any; an empty list is refused.
            error_type: Only letters whose last error was of this type.
            rate: At most so many in a second.
            target_queue: Send all of them to this queue instead. A letter whose type it does not
                take is skipped: no handler would get its event.
            superseded: Send those too that are superseded. Only those whose documents are all
                processed are skipped even so: a worker would drop their events.
            without_store: Send them though their services keep records in a store and this engine
                has none: what is superseded is sent too, and may take effect twice.
            reason: Why, for the history.
            dry_run: Only say what would be done. What goes to another queue than before may still
                be refused there: see `Report.moved`.
            on_progress: Called after each letter with the report so far.
        """
        if rate is not None and not rate > 0:
            raise ConfigurationError(f"rate={rate!r} is not accepted: use a number above 0")
        reason = checked_reason(reason)
        which = Which(ids=ids, error_type=error_type, limit=limit)
        await self._check_target(target_queue)
        name = await self._for_a_change(queue, without_store=without_store)
        report = Report(what="requeue", queue=name, dry_run=dry_run)
        await self._freeze(report, which)
        said = which.words() + (f" target_queue={target_queue}" if target_queue else "")
        said += " superseded" * superseded + " without_store" * without_store
        sending = Sending(
            self._letters,
            self._clock,
            report,
            target_queue=target_queue,
            leave=self._leaving(superseded=superseded),
            takers=self._takers,
            declared=await self._declared() if dry_run else (),
            rate=None if dry_run else rate,
            on_progress=on_progress,
        )
        if dry_run or not report.chosen:
            await sending.send(report.chosen)
            return report
        async with self._operator.recorded(_change(report, said, reason)):
            await sending.send(report.chosen)
        return report

    async def purge(
        self,
        queue: str,
        *,
        limit: int | None = None,
        ids: Collection[str] | None = None,
        error_type: str | None = None,
        without_store: bool = False,
        reason: str = "",
        dry_run: bool = False,
        before: OnProgress | None = None,
        on_progress: OnProgress | None = None,
    ) -> Report:
        """Remove letters for good, of those that are there at the beginning.

        `ids`: exactly these. None: any; an empty list is refused. `without_store`: though their
        services keep records in a store and this engine has none. It will say for ever that they
        failed. `reason`: why, for the history. `before` is called with what is selected before
        anything is changed; if it raises, nothing is.
        """
        reason = checked_reason(reason)
        which = Which(ids=ids, error_type=error_type, limit=limit)
        name = await self._for_a_change(queue, without_store=without_store)
        report = Report(what="purge", queue=name, dry_run=dry_run)
        await self._freeze(report, which)
        if dry_run or not report.chosen:
            report.done = len(report.chosen)
            return report
        if before is not None:
            before(report)
        said = which.words() + " without_store" * without_store
        async with self._operator.recorded(_change(report, said, reason)):
            for start in range(0, len(report.chosen), _REMOVED_AT_ONCE):
                some = report.chosen[start : start + _REMOVED_AT_ONCE]
                removed = await self._letters.remove(report.queue, some)
                report.done += removed
                report.gone += len(some) - removed
                if on_progress is not None:
                    on_progress(report)
        return report

    async def history(self, queue: str | None = None, limit: int = 20) -> Sequence[Document]:
        """Give the latest changes of a failed queue, or of all, the newest first.

        Each says who, when, what, why and how many. `outcome` is `complete`, `stopped`, or
        `intended`: then it is going on, or its process was killed and some of it may be done.
        """
        name = None if queue is None else await self.find(queue)
        found = await read_history(self._operator.history, limit, Subject.QUEUE, name)
        if self._history_without_store is not None:
            more = await read_history(self._history_without_store, limit, Subject.QUEUE, name)
            found = newest_first([*found, *more])[:limit]
        return found

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

    def _leaving(self, *, superseded: bool) -> LeaveOut | None:
        if not self.knows_superseded:
            return None
        return partial(find_processed, self._documents) if superseded else self.superseded

    async def _freeze(self, report: Report, which: Which) -> None:
        frozen = await freeze(self._letters, report.queue, which)
        report.chosen, report.missing = frozen.chosen, frozen.missing
        report.unselected = [
            Skipped(one, f"its last error is {error}, not {which.error_type}")
            for one, error in frozen.other_error
        ]

    async def _declared(self) -> Sequence[str]:
        return [each.queue for each in (await self._places.depths()).queues]

    async def _check_target(self, target: str | None) -> None:
        if target in {each.name for each in await self._letters.queues()}:
            raise ConfigurationError(
                f"target_queue={target!r} is not accepted: letters are kept there, and nobody "
                "would handle the event; name a queue that a service takes from"
            )


def _change(report: Report, selection: str, reason: str) -> Change:
    return Change(
        what=report.what,
        subject=Subject.QUEUE,
        name=report.queue,
        selection=selection,
        reason=reason,
        facts=report.facts,
    )
