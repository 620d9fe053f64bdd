"""Figures of sweeps as the tests of their metrics use them."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from headway.core import sweep_totals as totals
from headway.core.sweep_totals import key
from headway.testing.ports import SweepFigures, Tally

NOW = datetime(2024, 2, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TALLY = Tally(stuck=7, given_up=3, permanent=2, oldest=NOW - 30 * HOUR)


def figures(
    tallies: Mapping[str, Tally | None] | None = None,
    *,
    stored: Mapping[str, float] | None = None,
    known: bool = True,
    last_run: datetime | None = NOW,
    held_back: Mapping[str, int | None] | None = None,
) -> SweepFigures:
    shown = {"messages": TALLY} if tallies is None else tallies
    return SweepFigures(
        at=NOW,
        collections=("messages",),
        tallies=shown,
        totals=({**after_two_runs(), **(stored or {})} if known else None),
        held_back={"messages": 4} if held_back is None else held_back,
        last_run=last_run,
    )


def after_two_runs() -> dict[str, float]:
    """What a store has added up after a run of 0.2 s and one of 20 s, which failed."""
    added: dict[str, float] = {
        key(totals.REQUEUED, collection="messages"): 12,
        key(totals.SKIPPED_BACKOFF, collection="messages"): 5,
        key(totals.SKIPPED, reason="backoff", collection="messages"): 5,
        key(totals.GIVEN_UP, collection="messages"): 3,
        key(totals.RUNS, status="success"): 1,
        key(totals.RUNS, status="failure"): 1,
        key(totals.ERRORS, error_type="TimeoutError"): 1,
    }
    for seconds in (0.2, 20.0):
        for name, value in totals.run_took(seconds).items():
            added[name] = added.get(name, 0) + value
    return added
