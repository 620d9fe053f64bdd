import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from headway.core import metrics, sweep_metrics
from headway.core.metrics import CATALOGUE
from headway.facts import CommitResolved, Fact, GaveUp, Recovered, RetryScheduled
from headway.metrics import Metric
from headway.prometheus import PrometheusObserver
from headway.retrying import DEFAULT_CLASSIFIER, Failure, Reason

LOST = ConnectionResetError("lost")
FAILURE = Failure(
    attempt=1,
    at=datetime(2024, 2, 29, tzinfo=UTC),
    error=LOST,
    diagnosis=DEFAULT_CLASSIFIER.classify(LOST),
)
RETRIED = RetryScheduled(
    call="store",
    failure=FAILURE,
    max_attempts=5,
    delay=timedelta(seconds=0.3),
    context={"event_id": "e-1"},
)
RECOVERED = Recovered(call="store", attempts=2, elapsed=timedelta(seconds=1))
GAVE_UP = GaveUp(call="store", failure=FAILURE, max_attempts=5, reason=Reason.TTL_EXCEEDED)
COMMITTED = CommitResolved(call="store", operation_id="op-1", committed=True)
NOT_COMMITTED = CommitResolved(call="store", operation_id="op-2", committed=False)
ALL_FACTS = (RETRIED, RECOVERED, GAVE_UP, COMMITTED, NOT_COMMITTED)

FED_BY_FACTS = metrics.CALLS


def exposed(*facts: Fact) -> dict[str, Family]:
    return {family.name: family for family in text_string_to_metric_families(text(*facts))}


def text(*facts: Fact) -> str:
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    for fact in facts:
        observer.tell(fact)
    return generate_latest(registry).decode()


def samples(family: Family, name: str) -> dict[tuple[str, ...], float]:
    """Give the values of one sample by its labels, in the catalogue's order."""
    return {
        tuple(sample.labels.values()): sample.value
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.parametrize("metric", FED_BY_FACTS, ids=lambda metric: metric.name)
def test_every_metric_of_the_catalogue_is_exposed_and_fed_by_some_fact(metric: Metric) -> None:
    family = exposed(*ALL_FACTS)[metric.name.removesuffix("_total")]
    assert family.type == metric.kind
    assert family.documentation == metric.meaning
    counted = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
    (sample, *_) = [sample for sample in family.samples if sample.name == counted]
    assert tuple(sample.labels) == metric.labels
    assert sample.value == 1


def test_nothing_is_exposed_that_is_not_in_the_catalogue() -> None:
    known = {metric.name.removesuffix("_total") for metric in CATALOGUE}
    # The client library adds to each the time when it began to count.
    assert {name.removesuffix("_created") for name in exposed(*ALL_FACTS)} <= known


def test_every_label_value_is_a_name_or_a_code_and_never_an_id() -> None:
    families = exposed(*ALL_FACTS)
    values = {
        value
        for family in families.values()
        for sample in family.samples
        for label, value in sample.labels.items()
        if label != "le"
    }
    assert values == {"store", "CONNECTION_ERROR", "ttl_exceeded", "committed", "not_committed"}


def test_retries_are_counted_by_call_and_error_with_their_waits() -> None:
    families = exposed(RETRIED, RETRIED)
    retries = samples(families["headway_retries"], "headway_retries_total")
    assert retries == {("store", "CONNECTION_ERROR"): 2}
    wait = families["headway_retry_wait_seconds"]
    assert samples(wait, "headway_retry_wait_seconds_sum")["store",] == pytest.approx(0.6)
    buckets = samples(wait, "headway_retry_wait_seconds_bucket")
    assert (buckets["store", "0.2"], buckets["store", "0.5"]) == (0, 2)


def test_ends_are_counted_by_their_reason() -> None:
    family = exposed(GAVE_UP)["headway_gave_up"]
    assert samples(family, "headway_gave_up_total") == {
        ("store", "CONNECTION_ERROR", "ttl_exceeded"): 1
    }


def test_resolved_commits_are_counted_by_their_outcome() -> None:
    family = exposed(COMMITTED, NOT_COMMITTED, NOT_COMMITTED)["headway_commits_resolved"]
    assert samples(family, "headway_commits_resolved_total") == {
        ("store", "committed"): 1,
        ("store", "not_committed"): 2,
    }


def test_recovered_calls_are_counted() -> None:
    family = exposed(RECOVERED)["headway_recovered"]
    assert samples(family, "headway_recovered_total") == {("store",): 1}


def test_names_and_labels_of_the_catalogue_follow_the_conventions() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert metric.meaning.endswith(".")
        assert not set(metric.labels) & {"event_id", "transaction_id", "id", "message"}


def test_every_metric_that_is_defined_is_in_the_catalogue() -> None:
    defined = [*vars(metrics).values(), *vars(sweep_metrics).values()]
    assert {value for value in defined if isinstance(value, Metric)} == set(CATALOGUE)


@pytest.mark.server("prometheus")  # promtool comes with it
def test_promtool_has_nothing_to_complain_about() -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"],  # noqa: S607
        input=text(*ALL_FACTS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
