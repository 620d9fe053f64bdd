"""Figures of sweeps as the tests of their metrics use them."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from headway.testing.ports import SweepFigures, Tally

NOW = datetime(2024, 2, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TALLY = Tally(stuck=7, given_up=3, permanent=2, oldest=NOW - 30 * HOUR)
RUNS = {
    "0.1": 0,
    **dict.fromkeys(("0.5", "1.0", "5.0", "10.0"), 1),
    **dict.fromkeys(("30.0", "60.0", "300.0", "900.0", "3600.0", "+Inf"), 2),
}
"""By their seconds."""
AFTER_TWO_RUNS: Mapping[str, float] = {
    "retry_job_documents_requeued_total|collection=messages": 12,
    "retry_job_documents_skipped_backoff_total|collection=messages": 5,
    "retry_job_documents_skipped_total|reason=backoff|collection=messages": 5,
    "retry_job_documents_max_retries_exceeded_total|collection=messages": 3,
    "retry_job_runs_total|status=success": 1,
    "retry_job_runs_total|status=failure": 1,
    "retry_job_errors_total|error_type=TimeoutError": 1,
    **{f"retry_job_duration_seconds_bucket|le={bound}": runs for bound, runs in RUNS.items()},
    "retry_job_duration_seconds_sum": 20.2,
    "retry_job_duration_seconds_count": 2,
}
"""What a store has added up after a run of 0.2 s and one of 20 s, which failed."""


def figures(
    tallies: Mapping[str, Tally | None] | None = None,
    *,
    stored: Mapping[str, float] | None = None,
    known: bool = True,
    last_run: datetime | None = NOW,
    held_back: Mapping[str, int | None] | None = None,
) -> SweepFigures:
    return SweepFigures(
        at=NOW,
        collections=("messages",),
        tallies={"messages": TALLY} if tallies is None else tallies,
        totals={**AFTER_TWO_RUNS, **(stored or {})} if known else None,
        held_back={"messages": 4} if held_back is None else held_back,
        last_run=last_run,
    )
