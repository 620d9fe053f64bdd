"""What a sweep would do now, and why; nothing is changed."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from headway.core.failure import words
from headway.core.secrets import hidden
from headway.core.sweep_settings import SweepSettings
from headway.core.sweep_totals import Skip
from headway.core.tally import Tally
from headway.core.writes import ID
from headway.ports.clock import Clock
from headway.ports.engine import Sweeping
from headway.runtime.collection_names import misnamed
from headway.runtime.down_notes import DOWN
from headway.runtime.sweep_caps import Caps
from headway.runtime.sweep_doubts import doubt
from headway.runtime.sweep_making import make
from headway.runtime.sweep_pages import Page, Pages
from headway.runtime.sweep_pauses import Pauses
from headway.runtime.sweep_targets import Target

_FIRST = 5


@dataclass(slots=True)
class Listed:
    """Documents of which the first are named."""

    count: int = 0
    first: list[str] = field(default_factory=list)
    error: str = ""
    """What was wrong with the first one."""

    def add(self, ids: Iterable[str]) -> None:
        for one in ids:
            self.count += 1
            if len(self.first) < _FIRST:
                self.first.append(one)


@dataclass(slots=True)
class Preview:
    """What would become of the documents of one collection."""

    collection: str
    tally: Tally
    limit: int
    after_downtime: bool
    beyond: Skip = Skip.HELD_BACK
    """Why what is over the limit is left for later."""
    requeue: Listed = field(default_factory=Listed)
    give_up: Listed = field(default_factory=Listed)
    skipped: dict[Skip, Listed] = field(default_factory=dict)
    errors: dict[str, Listed] = field(default_factory=dict)
    """No event can be made of these; by the name of the exception."""
    near: str | None = None
    """One of a similar name that has documents, where this collection has none at all."""

    @property
    def stuck(self) -> int:
        """Count what is stuck, without what is only new."""
        return self.tally.stuck

    @property
    def is_down(self) -> bool:
        """Say whether no more than a probe would be sent."""
        return self.beyond is Skip.DOWN

    def take(self, page: Page, target: Target, clock: Clock) -> None:
        if self.is_down:
            page.spare(target.rule.lifecycle)
        due = deque(page.due)
        while due and self.requeue.count < self.limit:
            made = make(target, due, self.limit - self.requeue.count, clock)
            self.requeue.add(each.document_id for each in made.sendings)
            for unfit in made.unfit:
                error = hidden(words(unfit.error))
                kind = type(unfit.error).__name__
                self.errors.setdefault(kind, Listed(error=error)).add([unfit.document_id])
        self._skip(self.beyond, [str(each.document[ID]) for each in due])
        self.give_up.add(str(each[ID]) for each in page.exhausted)
        for why, ids in page.skipped.items():
            self._skip(why, ids)

    def _skip(self, why: Skip, ids: Sequence[str]) -> None:
        if ids:
            self.skipped.setdefault(why, Listed()).add(ids)


async def preview(
    targets: Sequence[Target], sweeping: Sweeping, settings: SweepSettings, clock: Clock
) -> list[Preview]:
    """Look at every collection as a sweep does."""
    down = await sweeping.leases.held(DOWN)
    there = await sweeping.desk.collections()
    near = misnamed((target.collection for target in targets), there)
    found = [await _look(target, down, sweeping, settings, clock) for target in targets]
    for each in found:
        each.near = near.get(each.collection)
    return found


async def _look(
    target: Target,
    down: Collection[str],
    sweeping: Sweeping,
    settings: SweepSettings,
    clock: Clock,
) -> Preview:
    now = clock.now()
    given = await Caps(sweeping.leases, settings).allowance(target.collection)
    probes = Pauses(settings.interval).probes(target, down, now)
    seen = Preview(
        collection=target.collection,
        tally=await sweeping.candidates.tally(target.rule, now),
        limit=given.limit if probes is None else probes,
        after_downtime=given.cap is not None,
        beyond=Skip.HELD_BACK if probes is None else Skip.DOWN,
    )
    since = now - settings.interval
    doubted = await doubt(target, sweeping, now, since)
    pages = Pages(
        target,
        sweeping.candidates,
        clock,
        newest_first=settings.newest_first,
        doubted_since=None if doubted is None else since,
    )
    async for page in pages.walk():
        seen.take(page, target, clock)
    return seen
