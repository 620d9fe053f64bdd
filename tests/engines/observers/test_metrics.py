"""What facts, queues and sweeps leave in the metrics; `metrics.prom` is what all of them expose."""

import subprocess
from dataclasses import replace
from datetime import timedelta
from math import isnan
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headway.adapters.prometheus.places import PlacesCollector
from headway.adapters.prometheus.sweeps import SweepCollector
from headway.facts import Fact, Status
from headway.operations import Depths, QueueCount
from headway.prometheus import PrometheusObserver
from headway.retrying import Reason
from headway.testing.clock import VirtualClock
from headway.testing.ports import SweepFigures, Tally
from tests.engines.observers import facts
from tests.engines.observers.sweep_figures import HOUR, NOW, TALLY, figures

APPROVED = Path(__file__).with_name("metrics.prom")
CHUNKING = {"service": "chunking"}
MESSAGES = {"collection": "messages"}
OF_CALLS = (
    facts.call_retried(facts.CONFLICT),
    facts.call_retried(facts.CONFLICT),
    facts.call_recovered(),
    facts.call_gave_up(facts.CONFLICT, Reason.TTL_EXCEEDED),
    facts.commit_resolved(committed=True),
    facts.commit_resolved(committed=False),
)


class Told:
    """A registry that has heard some facts, asked for one sample at a time."""

    def __init__(self, *facts: Fact) -> None:
        self.registry = CollectorRegistry()
        observer = PrometheusObserver(self.registry)
        for fact in facts:
            observer.tell(fact)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, CHUNKING | labels)


class Engine:
    """Counts what the test says, or cannot be reached."""

    def __init__(self) -> None:
        clock = VirtualClock()
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
            raise ConnectionRefusedError("refused")
        return self.depths_of

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def engine() -> Engine:
    return Engine()


def swept_as(of: SweepFigures) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(SweepCollector(lambda: of))
    return registry


def names(registry: CollectorRegistry) -> set[str]:
    return {family.name for family in registry.collect()}


# All of it


def exposed() -> str:
    registries = (Told(*facts.ALL, *OF_CALLS).registry, Engine().registry, swept_as(figures()))
    text = "".join(generate_latest(each).decode() for each in registries)
    # The client library adds to each counter the time when it began to count.
    return "".join(f"{line}\n" for line in text.splitlines() if "_created" not in line)


def approved() -> str:
    """Leave out what explains them: its words may change."""
    lines = exposed().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# HELP"))


def test_names_kinds_labels_and_values_are_the_approved_ones() -> None:
    assert approved() == APPROVED.read_text(), (
        "Metrics have changed. If that is meant, approve them:\n"
        "    python -m tests.engines.observers.test_metrics"
    )


def test_no_label_holds_an_id() -> None:
    labels = [line.rpartition(" ")[0] for line in exposed().splitlines() if "{" in line]
    for one in ("123", "a1b2", "not found", "e-1", "op-1"):
        assert not [each for each in labels if one in each]


@pytest.mark.server("prometheus")  # promtool comes with it
def test_promtool_has_nothing_to_complain_about() -> None:
    unknown = figures({"messages": None}, known=False)
    for text in (exposed(), generate_latest(swept_as(unknown)).decode()):
        checked = subprocess.run(
            ["promtool", "check", "metrics"],  # noqa: S607
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


# Facts


def test_a_success_is_counted_by_the_retry_that_succeeded_up_to_20() -> None:
    told = Told(facts.recovered(1), *(facts.recovered(retries) for retries in range(20, 200)))
    assert told.value("event_retry_success_total", attempt="1") == 1
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
def test_a_dead_letter_is_counted_by_its_reason_and_its_error(reason: Reason, label: str) -> None:
    assert Told(facts.PROCESSED).value("event_retry_dlq_total", reason=label) == 0
    told = Told(facts.dead(reason))
    assert told.value("event_retry_dlq_total", reason=label) == 1
    assert told.value("failures_total", error_type="DocumentNotFoundError") == 1
    assert told.value("event_retry_attempt_count_bucket", le="7.0") == 0
    assert told.value("event_retry_attempt_count_bucket", le="8.0") == 1


def test_each_event_of_a_group_is_counted_with_its_time() -> None:
    told = Told(facts.PROCESSED, facts.PROCESSED)
    assert told.value("events_processed_total") == 6
    assert told.value("processing_duration_seconds_count") == 6
    assert told.value("processing_duration_seconds_sum") == pytest.approx(5.5)
    assert told.value("processing_duration_seconds_bucket", le="0.5") == 4


def test_gauges_go_up_and_down() -> None:
    labels = {"event_type": "JSONParsed", "rule": "postgresql.connection"}
    assert Told(facts.DOWN).value("dependency_down", **labels) == 1
    assert Told(facts.DOWN, facts.BACK).value("dependency_down", **labels) == 0
    of_type = {"event_type": "JSONParsed"}
    assert Told(facts.PAUSED).value("event_type_paused", **of_type) == 1
    assert Told(facts.PAUSED, facts.GOES_ON).value("event_type_paused", **of_type) == 0


def test_the_observer_of_events_leaves_sweeps_to_the_store() -> None:
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    before = generate_latest(registry)
    observer.tell(facts.swept(Status.SUCCESS))
    assert generate_latest(registry) == before


# Queues


def test_what_an_engine_cannot_know_is_left_out(engine: Engine) -> None:
    queue = "chunking.json.parsed"
    assert engine.value("queue_depth", queue=queue, place="leased") == 4
    engine.depths_of = replace(engine.depths_of, workers=None, counts_leased=False)
    assert engine.value("queue_depth", queue=queue, place="leased") is None
    assert engine.value("headway_workers") is None
    assert engine.value("queue_depth", queue=queue, place="ready") == 5
    engine.depths_of = Depths(queues=[QueueCount(queue="q", ready=5)], failed={})
    assert engine.value("queue_depth", queue="q", place="ready") == 5
    assert engine.value("queue_oldest_age_seconds", queue="q") is None


def test_an_engine_that_is_away_leaves_no_numbers_that_look_like_answers(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    assert engine.asked == 0  # to register asks nothing
    assert engine.value("failed_letters", queue="chunking.failed") == 7
    engine.up = False
    for _ in range(3):
        shown = [sample for family in engine.registry.collect() for sample in family.samples]
        assert [(one.name, one.value) for one in shown] == [("headway_engine_up", 0)]
    (said,) = caplog.records
    assert "(refused)" in said.getMessage()
    assert said.exc_info is None
    engine.up = True
    assert engine.value("headway_engine_up") == 1


# Sweeps


def test_what_has_not_happened_yet_is_0_and_not_missing() -> None:
    """Else `increase()` would not see the first of each."""
    value = swept_as(
        SweepFigures(at=NOW, collections=("messages",), tallies={}, totals={})
    ).get_sample_value
    assert value("retry_job_documents_requeued_total", MESSAGES) == 0
    assert value("retry_job_documents_skipped_total", {**MESSAGES, "reason": "down"}) == 0
    assert value("retry_job_errors_total", {"error_type": "ConnectionError"}) == 0
    assert value("retry_job_runs_total", {"status": "failure"}) == 0
    assert value("retry_job_duration_seconds_count") == 0


def test_what_is_unknown_is_nan_and_counters_that_were_shown_stay() -> None:
    unknown = figures({"messages": None}, known=False, held_back={"messages": None})
    registry = swept_as(unknown)
    for gauge in ("stuck", "failed", "permanently_failed", "held_back"):
        value = registry.get_sample_value(f"retry_job_{gauge}_documents", MESSAGES)
        assert isnan(value or 0)
    assert isnan(registry.get_sample_value("retry_job_oldest_stuck_seconds", MESSAGES) or 0)
    assert registry.get_sample_value("retry_job_database_up") == 0
    counters = {"retry_job_runs", "retry_job_documents_requeued", "retry_job_duration_seconds"}
    assert not counters & names(registry)
    later = swept_as(replace(unknown, last_totals=figures().totals))
    assert counters <= names(later)
    assert later.get_sample_value("retry_job_documents_requeued_total", MESSAGES) == 12
    assert later.get_sample_value("retry_job_database_up") == 0


@pytest.mark.parametrize(
    ("tally", "age"),
    [
        (Tally(stuck=0, given_up=9, oldest=None), 0.0),
        (Tally(stuck=1, given_up=0, oldest=NOW - HOUR), 3600.0),
        (Tally(stuck=1, given_up=0, oldest=NOW + HOUR), 0.0),  # clocks differ
        (Tally(stuck=2, given_up=0), float("nan")),  # they bear no time
    ],
)
def test_the_age_of_the_oldest(tally: Tally, age: float) -> None:
    value = swept_as(figures({"messages": tally})).get_sample_value
    assert value("retry_job_oldest_stuck_seconds", MESSAGES) == pytest.approx(age, nan_ok=True)
    assert value("retry_job_database_up") == 1


def test_totals_of_a_newer_version_are_left_out_and_collections_may_have_any_name() -> None:
    odd = 'it\'s|a="b"\n✓'
    stored = {
        f"retry_job_documents_requeued_total|collection={odd}": 2.0,
        "retry_job_new_total|kind=x": 1,
        "retry_job_odd": 2,
    }
    registry = swept_as(figures({odd: TALLY}, stored=stored))
    assert names(registry) == names(swept_as(figures()))
    label = {"collection": odd}
    assert registry.get_sample_value("retry_job_documents_requeued_total", label) == 2
    assert registry.get_sample_value("retry_job_stuck_documents", label) == 7
    assert generate_latest(registry)


if __name__ == "__main__":
    APPROVED.write_text(approved())
