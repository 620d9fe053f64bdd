"""The board of stuck documents: what is stuck, what sweeps do about it, how the sweeper is.

All sweepers show the totals of the store, so these are taken with max, never added up.
"""

from panel import Board, Choice, Panel

_CHOSEN = 'collection=~"$collection"'
_DAY = 86400
_WELL = {"1": ("up", "green"), "0": ("down: what is stuck is unknown", "red")}


def _now(metric: str) -> tuple[tuple[str, str], ...]:
    return ((f"max by (collection) ({metric}{{{_CHOSEN}}})", "{{collection}}"),)


def _risen(metric: str, window: str) -> str:
    return f"max by (collection) (round(increase({metric}{{{_CHOSEN}}}[{window}])))"


STUCK = (
    Panel(
        "Stuck Documents",
        "Failed, or not moved for too long. More than 50 for an hour is a warning (tier 2).",
        "short",
        _now("retry_job_stuck_documents"),
        kind="gauge",
        steps=((50, "orange"), (200, "red")),
    ),
    Panel(
        "Stuck, over time",
        "A gap: nobody could say.",
        "short",
        _now("retry_job_stuck_documents"),
        steps=((50, "orange"), (200, "red")),
    ),
    Panel(
        "Oldest stuck document",
        "Since it was last attempted, or made. A day is a warning, a week an incident.",
        "s",
        _now("retry_job_oldest_stuck_seconds"),
        steps=((_DAY, "orange"), (2 * _DAY, "red"), (7 * _DAY, "dark-red")),
    ),
)

SWEPT = (
    Panel(
        "Retry Rate",
        "Stuck documents whose event was sent again, in a second.",
        "ops",
        (
            (
                f"max by (collection) (rate(retry_job_documents_requeued_total{{{_CHOSEN}}}[5m]))",
                "{{collection}}",
            ),
        ),
    ),
    Panel(
        "Backoff Skipped",
        "Stuck documents that a run met before their next attempt was due, in an hour.",
        "short",
        ((_risen("retry_job_documents_skipped_backoff_total", "1h"), "{{collection}}"),),
    ),
    Panel(
        "Held back",
        "Due in the last run and left for later ones: over its limit, or after a downtime.",
        "short",
        _now("retry_job_held_back_documents"),
        steps=((1, "orange"),),
    ),
    Panel(
        "Max Retries Exceeded",
        "Documents that ever became failed_max_retries.",
        "short",
        _now("retry_job_documents_max_retries_exceeded_total"),
        kind="number",
    ),
    Panel(
        "Max Retries Exceeded, in an hour",
        "More than 10 is critical (tier 3).",
        "short",
        ((_risen("retry_job_documents_max_retries_exceeded_total", "1h"), "{{collection}}"),),
        steps=((10, "red"),),
    ),
    Panel(
        "Failed documents",
        "failed_max_retries: they wait for a decision. 1000 in all is an incident (tier 4).",
        "short",
        _now("retry_job_failed_documents"),
        kind="gauge",
        steps=((1, "orange"), (1000, "red")),
    ),
    Panel(
        "Failed permanently",
        "No sweep takes them up. More than 10 in an hour is a warning (tier 3).",
        "short",
        _now("retry_job_permanently_failed_documents"),
    ),
    Panel(
        "Left alone, by reason",
        "In an hour; a document that is met by several runs is counted by each.",
        "short",
        (
            (
                (
                    "max by (collection, reason) (round(increase("
                    f"retry_job_documents_skipped_total{{{_CHOSEN}}}[1h]))) > 0"
                ),
                "{{collection}} {{reason}}",
            ),
        ),
    ),
)

SWEEPER = (
    Panel(
        "Job Duration",
        "How many runs took how long.",
        "s",
        (
            (
                "max by (le) (increase(retry_job_duration_seconds_bucket[$__rate_interval]))",
                "{{le}}",
            ),
        ),
        kind="heatmap",
    ),
    Panel(
        "Runs, in an hour",
        "A failure: something went wrong, and what could be done was done.",
        "short",
        (("max by (status) (round(increase(retry_job_runs_total[1h])))", "{{status}}"),),
    ),
    Panel(
        "Errors, in an hour",
        "By the name of the exception.",
        "short",
        (("max by (error_type) (round(increase(retry_job_errors_total[1h])))", "{{error_type}}"),),
    ),
    Panel(
        "Database",
        "Whether the sweeper could ask its database when it last looked.",
        "short",
        (("min(retry_job_database_up)", "database"),),
        kind="number",
        words=_WELL,
    ),
    Panel(
        "Last run",
        "Since a run ended. All else on this board is as old as this, if it was pushed.",
        "s",
        (("time() - max(retry_job_last_run_timestamp_seconds)", "ago"),),
        kind="number",
        steps=((1800, "orange"), (2700, "red")),
    ),
)

BOARD = Board(
    uid="headway-retry-policy",
    title="Retry Policy Monitoring",
    says="What is stuck, what sweeps do about it, how the sweeper is.",
    tags=("headway", "documents"),
    choices=(Choice("collection", "label_values(retry_job_stuck_documents, collection)"),),
    rows=(
        ("What is stuck", STUCK),
        ("What sweeps do about it", SWEPT),
        ("The sweeper", SWEEPER),
    ),
)
