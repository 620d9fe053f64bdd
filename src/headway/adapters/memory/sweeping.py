"""What a sweeper and an operator need of a store, on the state of the memory engine.

Nothing here waits between a look and the change that follows from it: so the change holds.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from headway.adapters.memory.kept import Held
from headway.adapters.memory.state import State
from headway.adapters.memory.views import age, attempted, has_lease, is_in
from headway.core.beginning import UNCLAIMED
from headway.core.document import CLAIM_TOKEN, STATUS, past
from headway.core.lifecycle import Lifecycle
from headway.core.lifecycle import State as Stage
from headway.core.stuck import is_stuck
from headway.core.sweep import SweepRule, claimed, given_back, given_up, watched
from headway.core.writes import ID, Document
from headway.ports.candidates import Claim, Tally, View
from headway.ports.clock import Clock
from headway.ports.engine import Sweeping


def memory_sweeping(state: State, clock: Clock) -> Sweeping:
    return Sweeping(
        candidates=MemoryCandidates(state),
        desk=MemoryDesk(state),
        leases=MemoryLeases(state, clock),
        totals=MemoryTotals(state),
    )


class _Collection:
    """The documents of one collection, read and written as JSON."""

    def __init__(self, state: State, name: str) -> None:
        self._stored = state.documents.setdefault(name, {})

    def read(self, one: str) -> Document | None:
        body = self._stored.get(one)
        return None if body is None else msgspec.json.decode(body)

    def every(self) -> list[Document]:
        return [msgspec.json.decode(self._stored[one]) for one in sorted(self._stored)]

    def put(self, one: str, document: Document) -> None:
        self._stored[one] = msgspec.json.encode(document)

    def remove(self, one: str) -> None:
        del self._stored[one]

    def as_read(self, documents: Iterable[Document], fields: Sequence[str]) -> dict[str, Document]:
        """Give what is stored, of the documents in which these fields are as they were read."""
        found = ((document, self.read(document[ID])) for document in documents)
        return {
            document[ID]: stored
            for document, stored in found
            if stored is not None and all(stored.get(f) == document.get(f) for f in fields)
        }

    async def pages(
        self, ids: Sequence[str], size: int, wanted: Callable[[Document], bool]
    ) -> AsyncIterator[Sequence[Document]]:
        """Give those of these documents that are still wanted when their page comes."""
        for start in range(0, len(ids), size):
            found = [self.read(one) for one in ids[start : start + size]]
            if page := [each for each in found if each is not None and wanted(each)]:
                yield page


class MemoryCandidates:
    """Looks at every document: there is no index, and there are few."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def prepare(self, rules: Sequence[SweepRule]) -> None:
        """Nothing has to be made."""

    def scan(
        self, rule: SweepRule, view: View, now: datetime, *, newest_first: bool, page: int
    ) -> AsyncIterator[Sequence[Document]]:
        collection = self._of(rule)
        found = [each for each in collection.every() if is_in(view, each, rule, now)]
        found.sort(key=lambda document: age(document, now), reverse=newest_first)
        ids = [document[ID] for document in found]
        return collection.pages(ids, page, lambda each: is_in(view, each, rule, now))

    async def leased(self, rule: SweepRule, now: datetime, at_most: int) -> int:
        every = self._of(rule).every()
        return min(sum(has_lease(each, rule, now) for each in every), at_most)

    async def claim(
        self, rule: SweepRule, claims: Sequence[Claim], token: str, now: datetime, lease: timedelta
    ) -> frozenset[str]:
        collection, until = self._of(rule), now + lease
        ours = collection.as_read((claim.document for claim in claims), watched(rule))
        for claim in claims:
            one = claim.document[ID]
            if one in ours:
                changes = claimed(ours[one], claim.requeue, token=token, until=until, now=now)
                collection.put(one, {**ours[one], **changes})
        return frozenset(ours)

    async def published(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        self._end(rule, ids, token, lambda _document: UNCLAIMED)

    async def give_back(self, rule: SweepRule, ids: Sequence[str], token: str) -> None:
        self._end(rule, ids, token, given_back)

    def _end(
        self,
        rule: SweepRule,
        ids: Sequence[str],
        token: str,
        changes: Callable[[Document], Mapping[str, Any]],
    ) -> None:
        collection = self._of(rule)
        for one in ids:
            document = collection.read(one)
            if document is not None and document.get(CLAIM_TOKEN) == token:
                collection.put(one, {**document, **changes(document)})

    async def give_up(
        self, rule: SweepRule, documents: Sequence[Document], now: datetime
    ) -> frozenset[str]:
        collection = self._of(rule)
        ours = collection.as_read(documents, watched(rule))
        for one, document in ours.items():
            collection.put(one, {**document, **given_up(rule, now)})
        return frozenset(ours)

    async def tally(self, rule: SweepRule, now: datetime) -> Tally:
        every = self._of(rule).every()
        stuck = [each for each in every if is_stuck(each, rule, now)]
        created = rule.lifecycle.created
        times = [attempted(each, now) or past(each.get(created), now) for each in stuck]
        return Tally(
            stuck=len(stuck),
            given_up=sum(rule.lifecycle.state(each) is Stage.GIVEN_UP for each in every),
            permanent=sum(is_in(View.PERMANENT, each, rule, now) for each in every),
            oldest=min((time for time in times if time is not None), default=None),
        )

    def _of(self, rule: SweepRule) -> _Collection:
        return _Collection(self._state, rule.collection)


class MemoryDesk:
    """Changes documents where their status is as it was read."""

    def __init__(self, state: State) -> None:
        self._state = state

    def browse(
        self, lifecycle: Lifecycle, states: Sequence[Stage], *, page: int
    ) -> AsyncIterator[Sequence[Document]]:
        collection = _Collection(self._state, lifecycle.collection)

        def wanted(document: Document) -> bool:
            return lifecycle.state(document) in states

        ids = [each[ID] for each in collection.every() if wanted(each)]
        return collection.pages(ids, page, wanted)

    async def collections(self) -> Sequence[str]:
        return sorted(name for name, stored in self._state.documents.items() if stored)

    async def change(
        self, collection: str, documents: Sequence[Document], changes: Mapping[str, Any]
    ) -> frozenset[str]:
        stored = _Collection(self._state, collection)
        ours = stored.as_read(documents, (STATUS,))
        for one, document in ours.items():
            stored.put(one, {**document, **changes})
        return frozenset(ours)

    async def remove(self, collection: str, documents: Sequence[Document]) -> frozenset[str]:
        stored = _Collection(self._state, collection)
        ours = stored.as_read(documents, (STATUS,))
        for one in ours:
            stored.remove(one)
        return frozenset(ours)

    async def move(self, collection: str, documents: Sequence[Document], to: str) -> frozenset[str]:
        stored, there = _Collection(self._state, collection), _Collection(self._state, to)
        ours = stored.as_read(documents, (STATUS,))
        free = {one: each for one, each in ours.items() if there.read(one) is None}
        for one, document in free.items():
            there.put(one, document)
            stored.remove(one)
        return frozenset(free)


class MemoryLeases:
    """Who holds what, by the clock that all engines on one state share."""

    def __init__(self, state: State, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    async def hold(self, name: str, token: str, lease: timedelta) -> bool:
        held, now = self._state.leases.get(name), self._clock.now()
        if held is not None and held.token != token and held.until > now:
            return False
        self._state.leases[name] = Held(token, now + lease)
        return True

    async def let_go(self, name: str, token: str) -> None:
        held = self._state.leases.get(name)
        if held is not None and held.token == token:
            del self._state.leases[name]

    async def held(self, prefix: str) -> Sequence[str]:
        now, leases = self._clock.now(), self._state.leases.items()
        return [name for name, held in leases if held.until > now and name.startswith(prefix)]


class MemoryTotals:
    """Adds up, for as long as the process lives."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def add(self, group: str, increments: Mapping[str, float]) -> Mapping[str, float]:
        totals = self._state.totals.setdefault(group, {})
        for name, by in increments.items():
            totals[name] = totals.get(name, 0) + by
        return dict(totals)
