"""One page of candidates: what is to become of each."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

from headway.core.document import LEASE_TOKEN, LEASE_UNTIL, moment
from headway.core.lifecycle import Lifecycle, State
from headway.core.sweep import GiveUp, Leave, Requeue, Why, judge
from headway.core.sweep_totals import Skip
from headway.core.writes import ID, Document
from headway.ports.candidates import Candidates, Claim, View
from headway.ports.clock import Clock
from headway.runtime.sweep_targets import Target

PAGE = 1_000
VIEWS = (View.CLAIM_OVER, View.LEASE_OVER, View.FAILED, View.OUTDATED, View.UNMOVED)
"""What was begun first comes first. A document may be in two of them."""
_OVERLAPPING = frozenset({View.CLAIM_OVER, View.LEASE_OVER})


_SKIPS = {
    Why.BACKOFF: Skip.BACKOFF,
    Why.IN_HAND: Skip.IN_HAND,
    Why.LEASED: Skip.LEASED,
    Why.CLAIMED: Skip.CLAIMED,
    Why.YOUNG: Skip.YOUNG,
    Why.SCHEDULED: Skip.SCHEDULED,
    Why.PROCESSED: Skip.SETTLED,
    Why.GIVEN_UP: Skip.SETTLED,
    Why.FOREIGN: Skip.SETTLED,
    Why.PERMANENT: Skip.SETTLED,
}


@dataclass(slots=True)
class Page:
    """Documents that were looked at together."""

    met: int = 0
    due: list[Claim] = field(default_factory=list)
    exhausted: list[Document] = field(default_factory=list)
    skipped: dict[Skip, list[str]] = field(default_factory=dict)

    @property
    def skips(self) -> Counter[Skip]:
        return Counter({why: len(ids) for why, ids in self.skipped.items()})

    def spare(self, lifecycle: Lifecycle) -> None:
        """Give up only what failed: while what they depend on is down, events may be parked."""
        exhausted, self.exhausted = self.exhausted, []
        for each in exhausted:
            if lifecycle.state(each) is State.FAILED:
                self.exhausted.append(each)
            else:
                self.skipped.setdefault(Skip.DOWN, []).append(str(each[ID]))


class Pages:
    """Walks over everything in a collection that may be due. Nothing is changed."""

    def __init__(
        self,
        target: Target,
        candidates: Candidates,
        clock: Clock,
        *,
        newest_first: bool,
        doubted_since: datetime | None = None,
    ) -> None:
        self._target = target
        self._candidates = candidates
        self._clock = clock
        self._newest_first = newest_first
        self._doubted_since = doubted_since
        """Leases that ended later may have been renewed if only that had been possible."""

    async def walk(self) -> AsyncGenerator[Page]:
        seen: set[str] = set()
        for view in VIEWS:
            found = self._candidates.scan(
                self._target.rule,
                view,
                self._clock.now(),
                newest_first=self._newest_first,
                page=PAGE,
            )
            try:
                async for documents in found:
                    fresh = [each for each in documents if str(each[ID]) not in seen]
                    if view in _OVERLAPPING:
                        seen.update(str(each[ID]) for each in fresh)
                    yield self._judge(fresh)
            finally:
                if isinstance(found, AsyncGenerator):
                    await found.aclose()

    def _judge(self, documents: Sequence[Document]) -> Page:
        page, now = Page(met=len(documents)), self._clock.now()

        def skip(why: Skip, document: Document) -> None:
            page.skipped.setdefault(why, []).append(str(document[ID]))

        for document in documents:
            judgement = judge(document, self._target.rule, now)
            if isinstance(judgement, Leave):
                skip(_SKIPS[judgement.why], document)
            elif self._doubted_since is not None and ended_since(document, self._doubted_since):
                skip(Skip.CIRCUIT, document)
            elif isinstance(judgement, GiveUp):
                page.exhausted.append(document)
            elif isinstance(judgement, Requeue):
                page.due.append(Claim(document, judgement))
            else:
                assert_never(judgement)
        return page


def ended_since(document: Document, instant: datetime) -> bool:
    """Say whether the lease on a document ended after an instant."""
    if document.get(LEASE_TOKEN) is None:
        return False
    until = moment(document.get(LEASE_UNTIL))
    return until is not None and until > instant
