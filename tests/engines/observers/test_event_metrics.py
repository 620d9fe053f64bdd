"""What events leave in the metrics, under their promised names."""

import subprocess
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headway.adapters.prometheus.places import PlacesCollector
from headway.core.metrics import EVENTS, PLACES
from headway.facts import Fact
from headway.metrics import Metric
from headway.operations import Depths, QueueCount
from headway.prometheus import PrometheusObserver
from headway.retrying import Reason
from headway.testing.clock import VirtualClock
from tests.engines.observers.event_facts import (
    ALL,
    AT,
    BACK,
    DOWN,
    DUPLICATES,
    GOES_ON,
    LEASE_LOST,
    PARKED,
    PAUSED,
    PROCESSED,
    REACHED,
    REACHED_AGAIN,
    SILENT,
    SKIPPED,
    SUPERSEDED,
    SUSPECT,
    dead,
    recovered,
    scheduled,
)

CHUNKING = {"service": "chunking"}


class Told:
    """A registry that has heard some facts, asked for one sample at a time."""

    def __init__(self, *facts: Fact) -> None:
        self.registry = CollectorRegistry()
        observer = PrometheusObserver(self.registry)
        for fact in facts:
            observer.tell(fact)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, CHUNKING | labels)


@pytest.mark.parametrize("metric", EVENTS, ids=lambda metric: metric.name)
def test_every_metric_of_events_is_exposed_with_its_labels_and_fed(metric: Metric) -> None:
    told = Told(*ALL)
    (family,) = [
        family
        for family in told.registry.collect()
        if family.name == metric.name.removesuffix("_total")
    ]
    assert (family.type, family.documentation) == (metric.kind, metric.meaning)
    counted = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
    fed = [one for one in family.samples if one.name == counted and one.value > 0]
    assert fed
    assert set(fed[0].labels) == set(metric.labels)


def test_a_success_is_counted_by_the_retry_that_succeeded() -> None:
    told = Told(recovered(1), recovered(3), recovered(3))
    assert told.value("event_retry_success_total", attempt="1") == 1
    assert told.value("event_retry_success_total", attempt="3") == 2
    assert told.value("event_retry_latency_seconds_sum") == pytest.approx(3 * 1.75)
    assert told.value("event_retry_attempt_count_sum") == 7


def test_the_label_of_the_attempt_is_bounded() -> None:
    told = Told(recovered(20), *(recovered(retries) for retries in range(21, 200)))
    assert told.value("event_retry_success_total", attempt="20") == 1
    assert told.value("event_retry_success_total", attempt="20+") == 179


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        (Reason.MAX_ATTEMPTS_EXCEEDED, "max_attempts"),
        (Reason.TTL_EXCEEDED, "ttl_exceeded"),
        (Reason.NON_RETRYABLE, "non_retryable"),
        (Reason.CRASH_LOOP, "crash_loop"),
        (Reason.MALFORMED, "malformed"),
        (Reason.UNROUTABLE, "unroutable"),
    ],
)
def test_a_letter_is_counted_by_its_reason_and_its_error(reason: Reason, label: str) -> None:
    told = Told(dead(reason))
    assert told.value("event_retry_dlq_total", reason=label) == 1
    assert told.value("failures_total", error_type="DocumentNotFoundError") == 1
    assert told.value("event_retry_attempt_count_bucket", le="7.0") == 0
    assert told.value("event_retry_attempt_count_bucket", le="8.0") == 1


def test_every_reason_begins_at_zero_with_the_first_event() -> None:
    told = Told(PROCESSED)
    for label in ("max_attempts", "ttl_exceeded", "non_retryable", "malformed"):
        assert told.value("event_retry_dlq_total", reason=label) == 0


def test_each_event_of_a_group_is_counted_with_its_time() -> None:
    told = Told(PROCESSED, PROCESSED)
    assert told.value("events_processed_total") == 6
    assert told.value("processing_duration_seconds_count") == 6
    assert told.value("processing_duration_seconds_sum") == pytest.approx(5.5)
    assert told.value("processing_duration_seconds_bucket", le="0.5") == 4


def test_what_was_recognised_skipped_parked_or_lost_is_counted() -> None:
    told = Told(DUPLICATES, SUPERSEDED, SKIPPED, PARKED, PARKED, SUSPECT, LEASE_LOST)
    assert told.value("event_duplicates_total", why="done") == 2
    assert told.value("event_duplicates_total", why="superseded") == 2
    assert told.value("documents_skipped_total") == 4
    assert told.value("event_parked_total", rule="postgresql.connection") == 2
    assert told.value("event_suspects_total") == 1
    assert told.value("event_leases_lost_total") == 1


def test_gauges_go_up_and_down() -> None:
    labels = {"event_type": "JSONParsed", "rule": "postgresql.connection"}
    assert Told(DOWN).value("dependency_down", **labels) == 1
    assert Told(DOWN, BACK).value("dependency_down", **labels) == 0
    of_type = {"event_type": "JSONParsed"}
    assert Told(PAUSED).value("event_type_paused", **of_type) == 1
    assert Told(PAUSED, GOES_ON).value("event_type_paused", **of_type) == 0


def test_when_a_worker_was_reached() -> None:
    told = Told(REACHED, SILENT, REACHED_AGAIN)
    assert told.value("headway_worker_reached_timestamp_seconds") == AT.timestamp()


def test_a_retry_that_is_only_planned_counts_nothing_yet() -> None:
    told = Told(scheduled())
    assert told.value("event_retry_attempt_count_count") == 0


def test_no_label_holds_an_id() -> None:
    lines = generate_latest(Told(*ALL).registry).decode().splitlines()
    text = "\n".join(line.rpartition(" ")[0] for line in lines)  # some values are times
    for forbidden in ("123", "a1b2", "not found"):
        assert forbidden not in text


class Engine:
    """Counts what the test says, or cannot be reached."""

    def __init__(self, clock: VirtualClock) -> None:
        self.up = True
        self.depths_of = Depths(
            queues=[
                QueueCount(
                    queue="chunking.json.parsed",
                    ready=5,
                    leased=4,
                    delayed=3,
                    parked=2,
                    held=1,
                    suspects=1,
                    oldest=clock.now() - timedelta(seconds=12),
                ),
                QueueCount(queue="embedding.chunks.prepared"),
            ],
            failed={"chunking.failed": 7, "embedding.failed": 0},
            workers=2,
        )
        self.registry = CollectorRegistry(auto_describe=True)
        self.asked = 0
        self.registry.register(PlacesCollector(self.depths, clock))

    def depths(self) -> Depths:
        self.asked += 1
        if not self.up:
            raise ConnectionRefusedError("away")
        return self.depths_of

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def engine() -> Engine:
    return Engine(VirtualClock())


def test_places_are_shown_by_queue(engine: Engine) -> None:
    queue = "chunking.json.parsed"
    places = ("ready", "leased", "delayed", "parked", "held")
    depths = [engine.value("queue_depth", queue=queue, place=place) for place in places]
    assert depths == [5, 4, 3, 2, 1]
    assert engine.value("queue_oldest_age_seconds", queue=queue) == 12
    assert engine.value("queue_oldest_age_seconds", queue="embedding.chunks.prepared") == 0
    assert engine.value("queue_suspects", queue=queue) == 1
    assert engine.value("failed_letters", queue="chunking.failed") == 7
    assert engine.value("failed_letters", queue="embedding.failed") == 0
    assert engine.value("headway_workers") == 2
    assert engine.value("headway_engine_up") == 1


def test_what_nobody_can_know_is_left_out(engine: Engine) -> None:
    engine.depths_of = replace(engine.depths_of, workers=None, counts_leased=False)
    queue = "chunking.json.parsed"
    assert engine.value("queue_depth", queue=queue, place="leased") is None
    assert engine.value("headway_workers") is None
    assert engine.value("queue_depth", queue=queue, place="ready") == 5


def test_an_engine_that_is_away_leaves_no_numbers_that_look_like_answers(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    assert engine.value("failed_letters", queue="chunking.failed") == 7
    engine.up = False
    for _ in range(3):
        shown = [sample for family in engine.registry.collect() for sample in family.samples]
        assert [(one.name, one.value) for one in shown] == [("headway_engine_up", 0)]
    (said,) = caplog.records
    assert said.getMessage() == (
        "The engine could not be asked for its counts (away); headway_engine_up is 0 until it can"
    )
    assert said.exc_info is None
    engine.up = True
    assert engine.value("headway_engine_up") == 1


def test_an_age_that_nobody_knows_is_not_shown_as_zero(engine: Engine) -> None:
    engine.depths_of = Depths(queues=[QueueCount(queue="q", ready=5)], failed={})
    assert engine.value("queue_depth", queue="q", place="ready") == 5
    assert engine.value("queue_oldest_age_seconds", queue="q") is None


def test_a_count_that_cannot_be_shown_is_not_taken_for_an_engine_that_is_away(
    engine: Engine,
) -> None:
    without_zone = datetime(2000, 1, 1)  # noqa: DTZ001 (that is the fault)
    engine.depths_of = Depths(queues=[QueueCount(queue="q", oldest=without_zone)], failed={})
    with pytest.raises(TypeError):
        list(engine.registry.collect())


def test_to_register_does_not_ask_the_engine_and_every_gauge_is_in_the_catalogue(
    engine: Engine,
) -> None:
    assert engine.asked == 0
    found = {family.name: family for family in engine.registry.collect()}
    assert set(found) == {metric.name for metric in PLACES}
    for metric in PLACES:
        assert found[metric.name].documentation == metric.meaning
        assert set(found[metric.name].samples[0].labels) == set(metric.labels)


@pytest.mark.server("prometheus")  # promtool comes with it
def test_promtool_has_nothing_to_complain_about(engine: Engine) -> None:
    text = generate_latest(Told(*ALL).registry) + generate_latest(engine.registry)
    checked = subprocess.run(
        ["promtool", "check", "metrics"],  # noqa: S607
        input=text.decode(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
