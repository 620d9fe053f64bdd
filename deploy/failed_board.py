"""The board of failed queues: what waits for a decision, and what comes to it."""

from events_board import BY_ERROR, BY_REASON, LETTERS
from panel import Board, Choice, Panel

_QUEUE = 'queue=~"$queue"'

WAITS = (
    Panel(
        "Failed Queues",
        "Letters that wait for a decision. 1000 in all queues is an incident (tier 4).",
        "short",
        ((f"max by (queue) (failed_letters{{{_QUEUE}}})", "{{queue}}"),),
        kind="gauge",
        steps=((1, "orange"), (1000, "red")),
    ),
    LETTERS,
    Panel(
        "More letters than at the emptiest within ten minutes",
        "What HeadwayLettersArriving looks at.",
        "short",
        (
            (
                (
                    f"max by (queue) (failed_letters{{{_QUEUE}}}) - "
                    f"min by (queue) (min_over_time(failed_letters{{{_QUEUE}}}[10m]))"
                ),
                "{{queue}}",
            ),
        ),
    ),
    Panel(
        "Failed documents",
        "Documents that are failed_max_retries; most of them have a letter too.",
        "short",
        (("max by (collection) (retry_job_failed_documents)", "{{collection}}"),),
    ),
)

COMES = (
    BY_REASON,
    BY_ERROR,
    Panel(
        "Share of events that end as letters",
        "Of those that ended within ten minutes. More than 5 % is critical.",
        "percentunit",
        (
            (
                (
                    "sum by (service) (increase(event_retry_dlq_total[10m])) / "
                    "(sum by (service) (increase(events_processed_total[10m])) + "
                    "sum by (service) (increase(event_retry_dlq_total[10m])))"
                ),
                "{{service}}",
            ),
        ),
        steps=((0.05, "red"),),
    ),
)

BOARD = Board(
    uid="headway-failed-queues",
    title="Failed Queues",
    says="Letters: what waits for a decision, and what comes to it.",
    tags=("headway", "letters"),
    choices=(
        Choice("service", "label_values(events_processed_total, service)"),
        Choice("queue", "label_values(failed_letters, queue)"),
    ),
    rows=(("What waits for a decision", WAITS), ("What comes to it", COMES)),
)
