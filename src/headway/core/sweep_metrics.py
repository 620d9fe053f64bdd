"""The metrics of sweeps. Names and labels of the documents are promised to the letter.

Counters and the histogram are what the store adds up (`core.sweep_totals`), whoever swept; while it
is away, they stay as they were last shown. Gauges are what was found when somebody looked; what
could not be found out is NaN, and never 0.
"""

from headway.core import sweep_totals
from headway.core.metric import Metric

_COLLECTION = ("collection",)

REQUEUED = Metric(
    sweep_totals.REQUEUED,
    "counter",
    _COLLECTION,
    "Stuck documents whose event was sent again, and is stored.",
)
SKIPPED_BACKOFF = Metric(
    sweep_totals.SKIPPED_BACKOFF,
    "counter",
    _COLLECTION,
    "Stuck documents that were left alone because their next attempt was not due; one that is met "
    "by several runs is counted by each.",
)
SKIPPED = Metric(
    sweep_totals.SKIPPED,
    "counter",
    ("collection", "reason"),
    "Documents that a run met and left alone; reason: "
    f"{', '.join(sweep_totals.Skip)}. Includes those of the backoff.",
)
GIVEN_UP = Metric(
    sweep_totals.GIVEN_UP,
    "counter",
    _COLLECTION,
    "Documents that had all their attempts and became failed_max_retries.",
)
RUNS = Metric(
    sweep_totals.RUNS,
    "counter",
    ("status",),
    "Runs of the sweeper; status: success, or failure if anything went wrong. A run that could not "
    "reach the store is counted when the store is back, if its process lives until then.",
)
ERRORS = Metric(
    sweep_totals.ERRORS,
    "counter",
    ("error_type",),
    "What went wrong in runs, by the name of the exception.",
)
DURATION = Metric(
    sweep_totals.DURATION,
    "histogram",
    (),
    "How long a run took.",
    sweep_totals.DURATION_BUCKETS,
)
STUCK = Metric(
    "retry_job_stuck_documents",
    "gauge",
    _COLLECTION,
    "Documents that are stuck now: failed, but not permanently, not moved for too long, or left by "
    "a worker or sweeper that died, as soon as its lease or claim is over; without those that are "
    "only young. NaN: unknown.",
)
FAILED = Metric(
    "retry_job_failed_documents",
    "gauge",
    _COLLECTION,
    "Documents that are failed_max_retries now and wait for somebody to decide. NaN: unknown.",
)
PERMANENT = Metric(
    "retry_job_permanently_failed_documents",
    "gauge",
    _COLLECTION,
    "Documents whose event failed permanently: no sweep takes them up, and they are not counted as "
    "stuck. They wait for a person, a new event or another version of their service. NaN: unknown.",
)
OLDEST_STUCK = Metric(
    "retry_job_oldest_stuck_seconds",
    "gauge",
    _COLLECTION,
    "How long ago the oldest stuck document was last attempted, or made; 0 where none is stuck. "
    "NaN: unknown, or no time is on record.",
)
HELD_BACK = Metric(
    "retry_job_held_back_documents",
    "gauge",
    _COLLECTION,
    "Documents that were due in the last run and left for later ones: over the limit of a run, or "
    "over the cap after a downtime. NaN: that run did not get so far.",
)
DATABASE_UP = Metric(
    "retry_job_database_up",
    "gauge",
    (),
    "1 if the store answered when the gauges were looked up; with 0, what it did not say is NaN.",
)
LAST_RUN = Metric(
    "retry_job_last_run_timestamp_seconds",
    "gauge",
    (),
    "When the last run ended, well or not. What was pushed stays when its process is gone: this "
    "says how old it is.",
)

SWEEPS = (
    REQUEUED,
    SKIPPED_BACKOFF,
    SKIPPED,
    GIVEN_UP,
    RUNS,
    ERRORS,
    DURATION,
    STUCK,
    FAILED,
    PERMANENT,
    OLDEST_STUCK,
    HELD_BACK,
    DATABASE_UP,
    LAST_RUN,
)
"""Read from the store: at each scrape, or before each push."""
