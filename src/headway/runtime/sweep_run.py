"""One run over one collection: claim, send, take down; and give up what has had all its attempts.

The order is the promise. A claim counts the attempt and says so for a while; then the event is sent
and confirmed; then the claim is let go. Killed in between, the claim ends by itself, and the same
event is sent once more under the same operation, so that it takes effect once.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

from headway.core.document import ATTEMPT_COUNT, LAST_ATTEMPT_TIME, LAST_ERROR, count
from headway.core.facts import Fact
from headway.core.failure import words
from headway.core.lifecycle import Lifecycle
from headway.core.secrets import hidden
from headway.core.sweep_facts import (
    CollectionSwept,
    DocumentGivenUp,
    DocumentsNotRebuilt,
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
from headway.runtime.sweep_sending import Dispatch
from headway.runtime.sweep_targets import Target

Tell = Callable[[Fact], None]
OnPage = Callable[[int], None]
"""Hears how many documents were looked at."""


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
        self._clock = clock
        self._token = token
        self._claim = claim
        self._pace = pace
        self._tell = tell
        self._refusals = Refusals()
        self._unfit: Counter[str] = Counter()
        self._first_unfit: dict[str, Unfit] = {}
        self._dispatch = Dispatch(
            target.rule, candidates, bus, token=token, refusals=self._refusals, tell=tell
        )
        self.given_up = 0
        self.skipped: Counter[Skip] = Counter()
        self.errors: Counter[str] = Counter()
        self.broken_by = ""

    @property
    def requeued(self) -> int:
        return self._dispatch.requeued

    @property
    def claims(self) -> int:
        """Count the claims that are left behind: nobody knows whether their events were sent."""
        return self._dispatch.claims

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
            errors=dict(self.errors + self._dispatch.errors + self._refusals.errors),
            broken_by=self.broken_by,
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
            return await self._dispatch.arrived(stopping)
        except asyncio.CancelledError:
            self._dispatch.break_off()
            raise
        finally:
            try:
                await self._dispatch.arrived(stopping)
            finally:
                self._tell_of_unfit()
                for refused in self._refusals.facts(self._target.collection):
                    self._tell(refused)

    async def _carry_out(self, page: Page, room: Room, stopping: Stopping) -> bool:
        if await stopping():
            return False
        if room.beyond is Skip.DOWN:
            page.spare(self._rule.lifecycle)
        self.skipped.update(page.skips)
        if page.exhausted:
            await self._give_up(page.exhausted)
        due = deque(page.due)
        while due:
            left = await self._left(room, stopping)
            if left <= 0:
                self.skipped[room.beyond] += len(due)
                break
            if await stopping():
                return False
            made = make(self._target, due, self._pace.at_once(min(left, len(due))), self._clock)
            self._take_down(made.unfit)
            if not await self._pace.wait(len(made.sendings), stopping):
                return False
            await self._send(made.sendings, stopping)
            if made.is_slow:
                # What was claimed must not wait for the next ones; and others have their turn.
                await self._dispatch.arrived(stopping)
                await self._clock.wait(timedelta())
        return True

    async def _left(self, room: Room, stopping: Stopping) -> int:
        """Say how many may still be sent; what is refused on its way makes room for others."""
        if self._dispatch.taken >= room.limit:
            await self._dispatch.arrived(stopping)
        return room.limit - self._dispatch.taken

    async def _send(self, sendings: Sequence[Sending], stopping: Stopping) -> None:
        if not sendings:
            return
        claimed = await self._refusals.change(sendings, self._claim_some, _id_of)
        ours = [each for each in sendings if each.document_id in claimed]
        others = [each.document_id for each in sendings if each.document_id not in claimed]
        self.skipped[Skip.CHANGED] += len(others) - self._refusals.among(others)
        self._dispatch.claimed(ours)
        try:
            has_arrived = await self._dispatch.arrived(stopping)
        except Exception:
            await self._dispatch.give_back_unsent(ours)
            raise
        if has_arrived:
            self._dispatch.send(ours)
        else:
            await self._dispatch.give_back_unsent(ours)

    async def _claim_some(self, sendings: Sequence[Sending]) -> frozenset[str]:
        claims = [Claim(each.document, each.requeue) for each in sendings]
        return await self._candidates.claim(
            self._rule, claims, self._token, self._clock.now(), self._claim
        )

    async def _give_up(self, documents: Sequence[Document]) -> None:
        async def ask(some: Sequence[Document]) -> frozenset[str]:
            return await self._candidates.give_up(self._rule, some, self._clock.now())

        gone = await self._refusals.change(documents, ask, lambda each: str(each[ID]))
        others = [str(each[ID]) for each in documents if str(each[ID]) not in gone]
        self.given_up += len(gone)
        self.skipped[Skip.CHANGED] += len(others) - self._refusals.among(others)
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
