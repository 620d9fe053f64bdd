"""Send letters again: each once, its own bytes, straight to the queue that it came from."""

import asyncio
import binascii
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta

from headway.core.errors import ConfigurationError, UnsendableError
from headway.core.letter import Letter
from headway.core.travel import Travel
from headway.ports.bus import Message
from headway.ports.clock import Clock
from headway.ports.letters import Letters
from headway.runtime.failed_reading import walk
from headway.runtime.failed_report import OnProgress, Report, Skipped

_AT_ONCE = 50
"""Letters on their way at the same time: an engine may store them in one commit."""

LeaveOut = Callable[[Sequence[Letter]], Awaitable[Mapping[str, str]]]
"""Gives the ids of the letters that are not to be sent, because they are superseded; and why."""
Takers = Callable[[str], Awaitable[Sequence[str]]]
"""Names the queues that take an event type."""


class Sending:
    """One requeue on its way. What has come of it so far is in its report."""

    def __init__(
        self,
        letters: Letters,
        clock: Clock,
        report: Report,
        *,
        takers: Takers,
        target_queue: str | None = None,
        leave: LeaveOut | None = None,
        declared: Collection[str] = (),
        rate: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._letters = letters
        self._clock = clock
        self._report = report
        self._find_takers = takers
        self._takers: dict[str, Sequence[str]] = {}
        """By event type: the queues that take it."""
        self._target = target_queue
        self._leave = leave
        self._declared = declared
        self._rate = rate
        self._at_once = _AT_ONCE if rate is None else 1
        self._began = clock.now()
        self._on_progress = on_progress

    async def send(self, ids: Collection[str]) -> None:
        """Send the letters with these ids, of those that are still there."""
        left = set(ids)
        group: list[Letter] = []
        async for letter in walk(self._letters, self._report.queue):
            if letter.letter_id in left:
                left.discard(letter.letter_id)
                group.append(letter)
            if len(group) == self._at_once:
                await self._send_together(group)
                group = []
            if not left:
                break
        await self._send_together(group)
        self._report.gone += len(left)
        self._tell()

    async def _send_together(self, group: Sequence[Letter]) -> None:
        if not group:
            return
        await self._keep_pace()
        group = await self._left_over(group)
        if not group:
            return
        if self._target is not None:
            for event_type in {each.event_type for each in group} - self._takers.keys():
                self._takers[event_type] = await self._find_takers(event_type)
        sending = [asyncio.create_task(self._send(letter)) for letter in group]
        try:
            await asyncio.wait(sending)
        except asyncio.CancelledError:
            await asyncio.wait(sending)  # they have left: only so is the report true
            raise
        finally:
            errors = [error for each in sending if each.done() and (error := each.exception())]
        if errors:
            raise errors[0]

    async def _left_over(self, group: Sequence[Letter]) -> Sequence[Letter]:
        """Skip what is to be left out, and give the others."""
        left_out = await self._leave(group) if self._leave is not None else {}
        for letter in group:
            if letter.letter_id in left_out:
                self._report.skipped.append(Skipped(letter.letter_id, left_out[letter.letter_id]))
                self._tell()
        return [letter for letter in group if letter.letter_id not in left_out]

    async def _keep_pace(self) -> None:
        if self._rate is not None:
            due = self._began + timedelta(seconds=self._report.done / self._rate)
            await self._clock.wait(max(due - self._clock.now(), timedelta()))

    async def _send(self, letter: Letter) -> None:
        report, target = self._report, self._target or letter.queue
        try:
            message = again(letter, target)
            self._refuse_other_types(letter, target)
            if report.dry_run:
                sent = self._would_send(target)
            else:
                sent = await self._letters.requeue(report.queue, letter.letter_id, message)
        except (ConfigurationError, UnsendableError, binascii.Error) as error:
            report.skipped.append(Skipped(letter.letter_id, str(error)))
        else:
            report.done += sent
            report.gone += not sent
            report.targets.update([target] * sent)
            report.moved += sent and bool(letter.queue) and target != letter.queue
        self._tell()

    def _refuse_other_types(self, letter: Letter, target: str) -> None:
        """Refuse a queue that does not take the letter's type: no handler would get the event.

        Its own queue is never refused: a version that takes the type may start there. Nor is a
        letter without a type, because only its bytes say what it is.
        """
        takers, event_type = self._takers.get(letter.event_type, ()), letter.event_type
        if not event_type or target == letter.queue or target in takers:
            return
        others = f"These queues do: {', '.join(takers)}." if takers else "No queue does."
        raise ConfigurationError(f"queue={target!r} does not take {event_type}. {others}")

    def _would_send(self, target: str) -> bool:
        if target not in self._declared:
            raise ConfigurationError(
                f"queue={target!r} is not declared; these are: {', '.join(self._declared)}"
            )
        return True

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._report)


def again(letter: Letter, queue: str) -> Message:
    """Make the message that sends the event of a letter again.

    Its operation stays the same. Its generation is made from the letter: sent twice for one letter,
    as after a crash, it takes effect once; sent for the next letter, it is a run of its own.
    """
    if not queue:
        raise ConfigurationError("it does not say which queue it came from: name a target queue")
    requeues = letter.requeues + 1
    return Message(
        body=letter.body,
        travel=Travel(
            operation=letter.operation,
            generation=f"{letter.letter_id}.{requeues}",
            requeues=requeues,
        ),
        event_type=letter.event_type,
        queue=queue,
    )
