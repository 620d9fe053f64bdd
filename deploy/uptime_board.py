"""The board of the uptime consumer: what is held, how waits end, what is taken for missed.

All processes of a consumer show the totals of its store, so these are taken with max, never added
up.
"""

from panel import Board, Panel

_SHARE_OF_TIMEOUTS, _SHARE_OF_BREAKERS = 0.05, 0.001


def _rate(metric: str) -> str:
    return f"max(rate({metric}[$__rate_interval]))"


HELD = (
    Panel(
        "Backlog size",
        "Results that are held now: added less removed. One or two for each subscription that "
        "waits is usual; what grows and grows is a consumer that falls behind.",
        "short",
        (("uptime:backlog:size", "held"),),
    ),
    Panel(
        "Added and removed",
        "Results that came before their turn, and held ones that were processed, in a second.",
        "ops",
        (
            (_rate("uptime_backlog_added_total"), "added"),
            (_rate("uptime_backlog_removed_total"), "removed"),
        ),
    ),
    Panel(
        "Looks",
        "Scheduled because a subscription began to hold results, scheduled again, and not "
        "scheduled because the broker was away: the index finds those.",
        "ops",
        (
            (_rate("uptime_backlog_task_scheduled_total"), "scheduled"),
            (_rate("uptime_backlog_rescheduling_total"), "again"),
            (_rate("uptime_backlog_schedule_failed_total"), "not scheduled"),
        ),
    ),
)

ENDS = (
    Panel(
        "Success rate",
        "Backlogs that were drained, of those that began, within an hour.",
        "percentunit",
        (("uptime:backlog:success_rate", "drained"),),
    ),
    Panel(
        "Timeout rate",
        "Waits that were given up after the last look, for each result held, within an hour. "
        "More than 5 %: gaps do not fill.",
        "percentunit",
        (("uptime:backlog:timeout_rate", "given up"),),
        steps=((_SHARE_OF_TIMEOUTS, "red"),),
    ),
    Panel(
        "Circuit breaker rate",
        "Waits that ended because ten results were held behind a gap, for each result held. "
        "More than 0.1 %: an extreme backlog.",
        "percentunit",
        (("uptime:backlog:circuit_breaker_rate", "tripped"),),
        steps=((_SHARE_OF_BREAKERS, "red"),),
    ),
)

MISSED = (
    Panel(
        "Misses made up",
        "Checks taken for missed, in a second. What the order of results is for: compare it with "
        "before.",
        "ops",
        ((_rate("uptime_result_processer_num_missing_check_sum"), "misses"),),
    ),
    Panel(
        "Misses before one result",
        "How many at a time.",
        "short",
        (
            (
                (
                    "max by (le) (increase("
                    "uptime_result_processer_num_missing_check_bucket[$__rate_interval]))"
                ),
                "{{le}}",
            ),
        ),
        kind="heatmap",
    ),
    Panel(
        "Misses taken back",
        "Results that came after their wait was given up, in a second.",
        "ops",
        ((_rate("uptime_misses_retracted_total"), "taken back"),),
    ),
)

RESULTS = (
    Panel(
        "Results processed",
        "By how the check went, in a second.",
        "ops",
        (
            (
                (
                    "sum by (status) (max without (instance) "
                    "(rate(uptime_results_processed_total[$__rate_interval])))"
                ),
                "{{status}}",
            ),
        ),
    ),
    Panel(
        "Results dropped",
        "By why, in a second.",
        "ops",
        (
            (
                ("max by (reason) (rate(uptime_results_dropped_total[$__rate_interval]))"),
                "{{reason}}",
            ),
        ),
    ),
    Panel(
        "Without their order, failed, too slow",
        "Results processed while the engine of sequences was away, attempts that failed, and "
        "leases that were lost, in a second. All three are 0 on a good day.",
        "ops",
        (
            (_rate("uptime_backlog_passed_total"), "engine away"),
            (_rate("uptime_backlog_failed_total"), "failed"),
            (_rate("uptime_backlog_lease_lost_total"), "lease lost"),
        ),
    ),
)

BOARD = Board(
    uid="headway-uptime",
    title="Uptime backlog",
    says="Results of checks that wait for their turn, and what becomes of them.",
    tags=("headway", "uptime"),
    choices=(),
    rows=(
        ("What is held", HELD),
        ("How waits end", ENDS),
        ("What is taken for missed", MISSED),
        ("What comes", RESULTS),
    ),
)
