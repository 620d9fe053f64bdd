"""The board of events: what waits, what flows, what ended badly, who works.

Every process shows the counts of the whole engine, so these are taken with max, never added up.
"""

from panel import Board, Choice, Panel

# Headway's own queues at a broker: delays, notes, the workers' own. [.] and not \\., which has to
# be doubled in some places and not in others.
_WORK = 'queue=~"($queue)([.]suspects)?",queue!~"headway[.].+"'
_OF_SERVICE = 'service=~"$service"'


def _rate(metric: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) (rate({metric}{{{_OF_SERVICE}}}[$__rate_interval]))"


def _quantile(share: float, metric: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', 'service', 'le')})"


WAITS = (
    Panel(
        "Events by queue and place",
        "Ready, leased, delayed, parked and held. At a broker all that is delayed is one line.",
        "short",
        (
            (
                'max by (queue, place) (queue_depth{queue=~"($queue)|headway[.]delay"})',
                "{{queue}} {{place}}",
            ),
        ),
    ),
    Panel(
        "RabbitMQ: ready and unacked",
        "Unacked: taken by a worker, in hand or ahead.",
        "short",
        (
            (
                f"max by (queue) (rabbitmq_queue_messages_ready{{{_WORK}}})",
                "{{queue}} ready",
            ),
            (
                f"max by (queue) (rabbitmq_queue_messages_unacked{{{_WORK}}})",
                "{{queue}} unacked",
            ),
            ('sum(rabbitmq_queue_messages{queue=~"headway[.]delay[.].+"})', "delayed, all queues"),
        ),
    ),
    Panel(
        "How long the oldest waits",
        "RabbitMQ does not say how old a message is: there, how long it takes to work off what is "
        "ready.",
        "s",
        (
            (
                'max by (queue) (queue_oldest_age_seconds{queue=~"$queue"})',
                "{{queue}} oldest",
            ),
            (
                (
                    f"max by (queue) (rabbitmq_queue_messages_ready{{{_WORK}}}) / sum by (queue) "
                    "(rate(rabbitmq_channel_messages_acked_total[$__rate_interval]))"
                ),
                "{{queue}} work left",
            ),
        ),
    ),
)

FLOWS = (
    Panel(
        "Processed",
        "Events that were handled and committed.",
        "ops",
        ((_rate("events_processed_total", "service"), "{{service}}"),),
    ),
    Panel(
        "Retries",
        "Events that succeeded after retries, and those that were put aside for an outage.",
        "ops",
        (
            (
                _rate("event_retry_success_total", "service", "attempt"),
                "{{service}} at {{attempt}}",
            ),
            (_rate("event_parked_total", "service", "rule"), "{{service}} parked: {{rule}}"),
        ),
    ),
    Panel(
        "Duplicates",
        "Events that were recognised and not run again; documents that were there already.",
        "ops",
        (
            (_rate("event_duplicates_total", "service", "why"), "{{service}} {{why}}"),
            (_rate("documents_skipped_total", "service"), "{{service}} documents"),
        ),
    ),
    Panel(
        "Time of a handler",
        "Of events that were processed.",
        "s",
        (
            (_quantile(0.5, "processing_duration_seconds"), "{{service}} p50"),
            (_quantile(0.99, "processing_duration_seconds"), "{{service}} p99"),
        ),
    ),
    Panel(
        "Time of a recovery",
        "From the first attempt to the retry that succeeded.",
        "s",
        (
            (_quantile(0.5, "event_retry_latency_seconds"), "{{service}} p50"),
            (_quantile(0.99, "event_retry_latency_seconds"), "{{service}} p99"),
        ),
    ),
    Panel(
        "Retries of an event",
        "Until it was processed or ended as a letter.",
        "short",
        ((_quantile(0.99, "event_retry_attempt_count"), "{{service}} p99"),),
    ),
)

LETTERS = Panel(
    "Letters",
    "What waits for a decision. RabbitMQ's number holds while somebody is reading them.",
    "short",
    (
        ('max by (queue) (failed_letters{queue=~"$queue"})', "{{queue}}"),
        (
            (
                'max by (queue) (rabbitmq_queue_messages{queue=~"$queue"} and on (queue) '
                "failed_letters)"
            ),
            "{{queue}} at RabbitMQ",
        ),
    ),
)
BY_REASON = Panel(
    "Letters written, by reason",
    "max_attempts, ttl_exceeded, non_retryable, crash_loop, malformed, unroutable.",
    "ops",
    ((_rate("event_retry_dlq_total", "service", "reason"), "{{service}} {{reason}}"),),
)
BY_ERROR = Panel(
    "Letters written, by error",
    "The class of the last error.",
    "ops",
    ((_rate("failures_total", "service", "error_type"), "{{service}} {{error_type}}"),),
)

BAD = (
    LETTERS,
    BY_REASON,
    BY_ERROR,
    Panel(
        "Suspects",
        "Events whose workers died twice: those that wait, and those that were run alone.",
        "short",
        (
            ('max by (queue) (queue_suspects{queue=~"$queue"})', "{{queue}} waiting"),
            (
                (
                    "sum by (service) (increase(event_suspects_total"
                    f"{{{_OF_SERVICE}}}[$__rate_interval]))"
                ),
                "{{service}} run alone",
            ),
        ),
    ),
    Panel(
        "Leases lost",
        "Events that were finished too late, without effect.",
        "ops",
        ((_rate("event_leases_lost_total", "service"), "{{service}}"),),
    ),
)

WORKS = (
    Panel(
        "Workers",
        "Targets that answer; processes that the engine knows; workers connected to RabbitMQ.",
        "short",
        (
            ('sum(up{job=~"headway.*"})', "targets"),
            ("max(headway_workers)", "processes"),
            (
                'count(rabbitmq_queue_consumers{queue=~"headway[.]worker[.].+"} > 0)',
                "at RabbitMQ",
            ),
        ),
    ),
    Panel(
        "Since events last reached a worker",
        "A few seconds is well; more than a minute is silence.",
        "s",
        (
            (
                (
                    "time() - min by (service, instance) "
                    f"(headway_worker_reached_timestamp_seconds{{{_OF_SERVICE}}})"
                ),
                "{{service}} {{instance}}",
            ),
        ),
    ),
    Panel(
        "RabbitMQ: consumers",
        "A queue with events and without consumers stands still.",
        "short",
        ((f"max by (queue) (rabbitmq_queue_consumers{{{_WORK}}})", "{{queue}}"),),
    ),
    Panel(
        "RabbitMQ: connections",
        "Two for each worker.",
        "short",
        (("sum by (instance) (rabbitmq_connections)", "{{instance}}"),),
    ),
    Panel(
        "RabbitMQ: how near it is to block publishing",
        "It blocks at 100 %.",
        "percentunit",
        (
            (
                "rabbitmq_process_resident_memory_bytes / rabbitmq_resident_memory_limit_bytes",
                "{{instance}} memory",
            ),
            (
                "rabbitmq_disk_space_available_limit_bytes / rabbitmq_disk_space_available_bytes",
                "{{instance}} disk",
            ),
        ),
    ),
    Panel(
        "Down, paused, not answering",
        "1 is bad: a dependency is down, an event type is paused, the engine does not answer.",
        "short",
        (
            (
                f"max by (service, event_type, rule) (dependency_down{{{_OF_SERVICE}}})",
                "{{service}} {{event_type}}: {{rule}} down",
            ),
            (
                f"max by (service, event_type) (event_type_paused{{{_OF_SERVICE}}})",
                "{{service}} {{event_type}} paused",
            ),
            ("1 - headway_engine_up", "{{instance}}: no engine"),
        ),
    ),
)

BOARD = Board(
    uid="headway-events",
    title="Headway events",
    says="What waits, what flows, what ended badly, who works.",
    tags=("headway", "rabbitmq"),
    choices=(
        Choice("service", "label_values(events_processed_total, service)"),
        Choice("queue", 'label_values({__name__=~"queue_depth|failed_letters"}, queue)'),
    ),
    rows=(
        ("What waits", WAITS),
        ("What flows", FLOWS),
        ("What ended badly", BAD),
        ("Who works", WORKS),
    ),
)
