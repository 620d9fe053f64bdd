"""One run over one collection: claim, send, take down; and give up what has had all its attempts.

The order is the promise. A claim counts the attempt and says so for a while; then the event is sent
and confirmed; then the claim is let go. Killed in between, the claim ends by itself, and the same
event is sent once more under the same operation, so that it takes effect once.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import timedelta

from headway.core.catalogue import EVERYTHING
from headway.core.document import ATTEMPT_COUNT, LAST_ATTEMPT_TIME, LAST_ERROR, count
from headway.core.errors import ConfigurationError
from headway.core.facts import Fact
from headway.core.failure import Verdict, words
from headway.core.lifecycle import Lifecycle
from headway.core.secrets import hidden
from headway.core.sweep import SweepRule
from headway.core.sweep_facts import (
    CollectionSwept,
    DocumentGivenUp,
    DocumentsNotRebuilt,
    DocumentsRequeued,
)
from headway.core.sweep_totals import Skip
from headway.core.tally import Tally
from headway.core.writes import ID, Document
from headway.ports.bus import Bus
from headway.ports.candidates import Candidates, Claim
from headway.ports.clock import Clock
from headway.runtime.sweep_events import Sending
from headway.runtime.sweep_making import Unfit, make
from headway.runtime.sweep_pace import Pace, Stopping
from headway.runtime.sweep_pages import Page, Pages
from headway.runtime.sweep_refusals import Refusals
from headway.runtime.sweep_targets import Target

_REFUSED_IN_A_ROW = 10
"""One by one. Then it is not about single events, and the run over this collection ends."""

Tell = Callable[[Fact], None]
OnPage = Callable[[int], None]
"""Hears how many documents were looked at."""
_End = Callable[[SweepRule, Sequence[str], str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Room:
    """How many documents a run may send, and why it leaves the others."""

    limit: int
    beyond: Skip = Skip.HELD_BACK


class CollectionRun:
    """What has come of it so far can be asked at any time, also after an error."""

    def __init__(
        self,
        target: Target,
        candidates: Candidates,
        bus: Bus,
        clock: Clock,
        *,
        token: str,
        claim: timedelta,
        pace: Pace,
        tell: Tell,
    ) -> None:
        self._target = target
        self._rule = target.rule
        self._candidates = candidates
        self._bus = bus
        self._clock = clock
        self._token = token
        self._claim = claim
        self._pace = pace
        self._tell = tell
        self._refusals = Refusals()
        self._unfit: Counter[str] = Counter()
        self._first_unfit: dict[str, Unfit] = {}
        self._refused_in_a_row = 0
        self._underway: asyncio.Task[None] | None = None
        self._claimed = 0
        self.requeued = 0
        self.given_up = 0
        self.skipped: Counter[Skip] = Counter()
        self.errors: Counter[str] = Counter()

    @property
    def held_back(self) -> int:
        return self.skipped[Skip.HELD_BACK]

    def swept(self, tally: Tally | None) -> CollectionSwept:
        """Sum it up."""
        return CollectionSwept(
            collection=self._target.collection,
            requeued=self.requeued,
            skipped=dict(+self.skipped + Counter({Skip.REFUSED: self._refusals.count})),
            given_up=self.given_up,
            held_back=self.held_back,
            errors=dict(self.errors + self._refusals.errors),
            tally=tally,
        )

    async def run(self, pages: Pages, room: Room, stopping: Stopping, on_page: OnPage) -> bool:
        """Carry out all pages, and send so many events at most; False: told to stop before."""
        try:
            async with aclosing(pages.walk()) as walk:
                async for page in walk:
                    if not await self._carry_out(page, room, stopping):
                        return False
                    on_page(page.met)
            return True
        finally:
            await self._sent()
            self._tell_of_unfit()
            for refused in self._refusals.facts(self._target.collection):
                self._tell(refused)

    async def _carry_out(self, page: Page, room: Room, stopping: Stopping) -> bool:
        if await stopping():
            return False
        self.skipped.update(page.skips)
        if page.exhausted:
            await self._give_up(page.exhausted)
        due = deque(page.due)
        while due:
            left = room.limit - self._claimed
            if left <= 0:
                self.skipped[room.beyond] += len(due)
                break
            if await stopping():
                return False
            made = make(self._target, due, self._pace.at_once(min(left, len(due))), self._clock)
            self._take_down(made.unfit)
            if not await self._pace.wait(len(made.sendings), stopping):
                return False
            await self._send(made.sendings)
            if made.is_slow:
                # What was claimed must not wait for the next ones; and others have their turn.
                await self._sent()
                await self._clock.wait(timedelta())
        return True

    async def _send(self, sendings: Sequence[Sending]) -> None:
        if not sendings:
            return
        before = self._refusals.count
        claimed = await self._refusals.change(sendings, self._claim_some, _id_of)
        ours = [each for each in sendings if each.document_id in claimed]
        refused = self._refusals.count - before
        self.skipped[Skip.CHANGED] += len(sendings) - len(ours) - refused
        self._claimed += len(ours)
        try:
            await self._sent()
        except Exception:
            # Of these nothing was sent, so they need not wait until their claims end. Nobody knows
            # that of those which were claimed before.
            unsent = [each.document_id for each in ours if not each.requeue.again]
            with suppress(Exception):  # whatever a driver raises: then they do
                await self._end(self._candidates.give_back, unsent)
            raise
        if ours:
            # Sent while the next page is read and claimed: the two wait for different servers.
            self._underway = asyncio.create_task(self._publish(ours))

    async def _claim_some(self, sendings: Sequence[Sending]) -> frozenset[str]:
        claims = [Claim(each.document, each.requeue) for each in sendings]
        return await self._candidates.claim(
            self._rule, claims, self._token, self._clock.now(), self._claim
        )

    async def _end(self, end: _End, ids: Sequence[str]) -> None:
        """End claims, one way or the other."""

        async def ask(some: Sequence[str]) -> frozenset[str]:
            await end(self._rule, some, self._token)
            return frozenset(some)

        if ids:
            await self._refusals.change(ids, ask, str)

    async def _sent(self) -> None:
        """Wait until what is on its way has arrived."""
        underway, self._underway = self._underway, None
        if underway is not None:
            try:
                await underway
            finally:
                underway.cancel()  # told to end: whatever is not confirmed is sent again later

    async def _publish(self, sendings: Sequence[Sending]) -> None:
        ids = [each.document_id for each in sendings]
        try:
            await self._bus.publish([each.message for each in sendings])
        except Exception as error:
            if not was_refused(error):
                raise  # perhaps it was stored: the claims stay, and are sent again when they end
            if len(sendings) > 1 and not isinstance(error, ConfigurationError):
                for each in sendings:  # whose fault it is comes out one by one
                    await self._publish([each])
                return
            await self._end(self._candidates.give_back, ids)
            self._refused_in_a_row += 1
            if isinstance(error, ConfigurationError) or (
                self._refused_in_a_row >= _REFUSED_IN_A_ROW
            ):
                raise
            self.errors[type(error).__name__] += 1
            return
        self._refused_in_a_row = 0
        await self._end(self._candidates.published, ids)
        self.requeued += len(ids)
        self._tell(DocumentsRequeued(collection=self._target.collection, document_ids=tuple(ids)))

    async def _give_up(self, documents: Sequence[Document]) -> None:
        async def ask(some: Sequence[Document]) -> frozenset[str]:
            return await self._candidates.give_up(self._rule, some, self._clock.now())

        before = self._refusals.count
        gone = await self._refusals.change(documents, ask, lambda each: str(each[ID]))
        refused = self._refusals.count - before
        self.given_up += len(gone)
        self.skipped[Skip.CHANGED] += len(documents) - len(gone) - refused
        for document in documents:
            if str(document[ID]) in gone:
                self._tell(given_up(document, self._rule.lifecycle))

    def _take_down(self, unfit: Sequence[Unfit]) -> None:
        for each in unfit:
            kind = type(each.error).__name__
            self.errors[kind] += 1
            self._unfit[kind] += 1
            self._first_unfit.setdefault(kind, each)

    def _tell_of_unfit(self) -> None:
        """Say it once for each kind of error: there may be very many of them, in every run."""
        for kind, first in self._first_unfit.items():
            self._tell(
                DocumentsNotRebuilt(
                    collection=self._target.collection,
                    event_type=self._target.subscription.event_type,
                    error_type=kind,
                    count=self._unfit[kind],
                    first_id=first.document_id,
                    first_error=hidden(words(first.error)),
                )
            )


def _id_of(sending: Sending) -> str:
    return sending.document_id


def was_refused(error: Exception) -> bool:
    """Say whether an error means that nothing was stored, and not merely that nobody knows."""
    return EVERYTHING.classify(error).verdict is Verdict.PERMANENT


def given_up(document: Document, lifecycle: Lifecycle) -> DocumentGivenUp:
    last = document.get(LAST_ERROR)
    error = f"{last.get('type')}: {last.get('message')}" if isinstance(last, dict) else last
    when = document.get(LAST_ATTEMPT_TIME)
    return DocumentGivenUp(
        collection=lifecycle.collection,
        document_id=str(document[ID]),
        attempts=count(document, ATTEMPT_COUNT),
        last_attempt_time="" if when is None else str(when),
        last_error="" if error is None else str(error),
    )
