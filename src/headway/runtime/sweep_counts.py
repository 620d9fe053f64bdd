"""Add what runs count to the totals in the store; what it does not take now, it gets later."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from headway.core import sweep_totals as totals
from headway.core.sweep_facts import CollectionSwept
from headway.core.sweep_totals import Skip, Status, key
from headway.ports.totals import Totals


class Counts:
    """The totals of one sweeper. All that are known beforehand begin at 0."""

    def __init__(self, store: Totals, collections: Iterable[str]) -> None:
        self._store = store
        self._unsaved: dict[str, float] = totals.from_zero(collections)

    async def add(self, increments: Mapping[str, float]) -> Mapping[str, float]:
        """Add to the totals; give all of them."""
        for name, value in increments.items():
            self._unsaved[name] = self._unsaved.get(name, 0.0) + value
        answer = await self._store.add(totals.GROUP, self._unsaved)
        # Not before it is stored. If its answer was lost, this is added twice: a figure that is a
        # little too high is better than one that hides a failure.
        self._unsaved = {}
        return answer


def of_collection(swept: CollectionSwept) -> dict[str, float]:
    """Give what a run over one collection adds."""
    name = swept.collection
    return {
        key(totals.REQUEUED, collection=name): swept.requeued,
        key(totals.GIVEN_UP, collection=name): swept.given_up,
        key(totals.SKIPPED_BACKOFF, collection=name): swept.skipped.get(Skip.BACKOFF, 0),
        **{
            key(totals.SKIPPED, reason=why, collection=name): count
            for why, count in swept.skipped.items()
        },
        **of_errors(swept.errors),
    }


def of_errors(errors: Mapping[str, int]) -> dict[str, float]:
    return {key(totals.ERRORS, error_type=kind): count for kind, count in errors.items()}


def of_run(status: Status, elapsed: timedelta) -> dict[str, float]:
    """Give what a whole run adds."""
    return {key(totals.RUNS, status=status): 1, **totals.run_took(elapsed.total_seconds())}
