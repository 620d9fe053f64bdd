"""The catalogue of metrics: every name, its kind, labels and meaning. The docs include it verbatim.

Labels are bounded: kinds, names of functions and reason codes, never ids or messages.
"""

from headway.core.metric import Metric
from headway.core.sweep_metrics import SWEEPS

# Calls that are retried in place.
RETRIES = Metric(
    "headway_retries_total",
    "counter",
    ("call", "error_type"),
    "Attempts that failed and were followed by another one.",
)
RECOVERED = Metric(
    "headway_recovered_total",
    "counter",
    ("call",),
    "Calls that succeeded after at least one failed attempt.",
)
GAVE_UP = Metric(
    "headway_gave_up_total",
    "counter",
    ("call", "error_type", "reason"),
    "Calls that failed for good.",
)
RETRY_WAIT = Metric(
    "headway_retry_wait_seconds",
    "histogram",
    ("call",),
    "How long callers waited before the next attempt.",
    (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0),
)
COMMITS_RESOLVED = Metric(
    "headway_commits_resolved_total",
    "counter",
    ("call", "outcome"),
    "Commits whose answer was lost; outcome: committed, not_committed, or still unknown.",
)


# Events. Their names and labels are promised to the letter.
EVENT_RETRY_SUCCESS = Metric(
    "event_retry_success_total",
    "counter",
    ("service", "attempt"),
    "Events that were processed after retries; attempt: the retry that succeeded, 1 to 20, or 20+.",
)
EVENT_RETRY_LATENCY = Metric(
    "event_retry_latency_seconds",
    "histogram",
    ("service",),
    "Time from the first attempt at an event to the retry that succeeded.",
    (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 300.0, 900.0, 1800.0, 7200.0),
)
EVENT_RETRY_DLQ = Metric(
    "event_retry_dlq_total",
    "counter",
    ("service", "reason"),
    "Events that ended as letters; reason: max_attempts, ttl_exceeded, non_retryable, crash_loop, "
    "malformed or unroutable.",
)
EVENT_RETRY_ATTEMPT_COUNT = Metric(
    "event_retry_attempt_count",
    "histogram",
    ("service",),
    "Retries that an event took until it was processed or ended as a letter.",
    (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 12.0, 20.0),
)
EVENTS_PROCESSED = Metric(
    "events_processed_total",
    "counter",
    ("service",),
    "Events that were handled and committed.",
)
FAILURES = Metric(
    "failures_total",
    "counter",
    ("service", "error_type"),
    "Events that ended as letters, by the class of their last error.",
)
PROCESSING_DURATION = Metric(
    "processing_duration_seconds",
    "histogram",
    ("service",),
    "How long the handler took for an event that was processed.",
    (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0),
)
EVENT_DUPLICATES = Metric(
    "event_duplicates_total",
    "counter",
    ("service", "why"),
    "Events that were recognised and not run again; why: done before, or superseded.",
)
DOCUMENTS_SKIPPED = Metric(
    "documents_skipped_total",
    "counter",
    ("service",),
    "Documents that were to be inserted and were there already.",
)
EVENT_PARKED = Metric(
    "event_parked_total",
    "counter",
    ("service", "rule"),
    "Events that were put aside because what they depend on was down.",
)
EVENT_HANDED_ON = Metric(
    "event_handed_on_total",
    "counter",
    ("service", "version"),
    "Times that this version of a service left an event that it cannot read to another version.",
)
DEPENDENCY_DOWN = Metric(
    "dependency_down",
    "gauge",
    ("service", "event_type", "rule"),
    "1 while events are parked because a dependency is down, by the rule that its errors match.",
)
EVENT_TYPE_PAUSED = Metric(
    "event_type_paused",
    "gauge",
    ("service", "event_type"),
    "1 while events of one type are paused because most of them failed for good: a bad deploy.",
)
EVENT_SUSPECTS = Metric(
    "event_suspects_total",
    "counter",
    ("service",),
    "Events that were run alone because their workers had died twice.",
)
EVENT_LEASES_LOST = Metric(
    "event_leases_lost_total",
    "counter",
    ("service",),
    "Events that were finished too late, when they belonged to somebody else: without effect.",
)
WORKER_REACHED = Metric(
    "headway_worker_reached_timestamp_seconds",
    "gauge",
    ("service",),
    "When it was last seen that events reach a worker; of several processes the one that is worst "
    "off. A worker that is alive and gets nothing stands still here.",
)

# What the engine counts when somebody asks.
ENGINE_UP = Metric(
    "headway_engine_up",
    "gauge",
    (),
    "1 if the engine could be asked for its counts; without an answer there are no counts at all.",
)
QUEUE_DEPTH = Metric(
    "queue_depth",
    "gauge",
    ("queue", "place"),
    "Events in a queue; place: ready, leased, delayed, parked or held.",
)
QUEUE_OLDEST_AGE = Metric(
    "queue_oldest_age_seconds",
    "gauge",
    ("queue",),
    "How long the oldest ready event has been waiting; 0 where none is, and nothing where events "
    "are ready and the engine cannot say since when (RabbitMQ).",
)
QUEUE_SUSPECTS = Metric(
    "queue_suspects",
    "gauge",
    ("queue",),
    "Events in a queue that came back twice or more because their workers were gone.",
)
FAILED_LETTERS = Metric(
    "failed_letters",
    "gauge",
    ("queue",),
    "Letters in a failed queue that wait for somebody to decide.",
)
UNROUTED_EVENTS = Metric(
    "headway_unrouted_events",
    "gauge",
    (),
    "Events of types that no service takes. They are kept until a service takes their type, or a "
    "person removes them.",
)
WORKERS = Metric(
    "headway_workers",
    "gauge",
    (),
    "Worker processes that are alive, as far as the engine knows.",
)

CALLS = (RETRIES, RECOVERED, GAVE_UP, RETRY_WAIT, COMMITS_RESOLVED)
"""Fed by the facts of calls."""
EVENTS = (
    EVENT_RETRY_SUCCESS,
    EVENT_RETRY_LATENCY,
    EVENT_RETRY_DLQ,
    EVENT_RETRY_ATTEMPT_COUNT,
    EVENTS_PROCESSED,
    FAILURES,
    PROCESSING_DURATION,
    EVENT_DUPLICATES,
    DOCUMENTS_SKIPPED,
    EVENT_PARKED,
    EVENT_HANDED_ON,
    DEPENDENCY_DOWN,
    EVENT_TYPE_PAUSED,
    EVENT_SUSPECTS,
    EVENT_LEASES_LOST,
    WORKER_REACHED,
)
"""Fed by the facts of events."""
PLACES = (
    ENGINE_UP,
    QUEUE_DEPTH,
    QUEUE_OLDEST_AGE,
    QUEUE_SUSPECTS,
    FAILED_LETTERS,
    UNROUTED_EVENTS,
    WORKERS,
)
"""Read from the engine at each scrape."""
CATALOGUE = (*CALLS, *EVENTS, *PLACES, *SWEEPS)
