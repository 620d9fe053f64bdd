"""Figures of sweeps as metrics: every name of the catalogue, and NaN for what nobody could say."""

import subprocess
from dataclasses import replace
from math import isnan

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headway.adapters.prometheus.sweeps import SweepCollector
from headway.core.sweep_figures import held_back
from headway.core.sweep_metrics import SWEEPS
from headway.core.sweep_totals import KNOWN_ERRORS
from headway.facts import CollectionSwept, Skip, Status, SweepEnded
from headway.prometheus import PrometheusObserver
from headway.testing.ports import SweepFigures, Tally
from tests.engines.observers.sweep_figures import HOUR, NOW, TALLY, figures

MESSAGES = {"collection": "messages"}


def shown(of: SweepFigures) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(SweepCollector(lambda: of))
    return registry


def names(registry: CollectorRegistry) -> set[str]:
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
    }


def test_every_metric_of_the_catalogue_is_shown_with_its_labels_and_no_other() -> None:
    families = {
        (f"{one.name}_total" if one.type == "counter" else one.name): one
        for one in shown(figures()).collect()
    }
    assert set(families) == {metric.name for metric in SWEEPS}
    for metric in SWEEPS:
        family = families[metric.name]
        assert family.type == metric.kind
        assert family.samples
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


def test_totals_and_gauges_are_what_the_store_said() -> None:
    value = shown(figures()).get_sample_value
    assert value("retry_job_documents_requeued_total", MESSAGES) == 12
    assert value("retry_job_documents_skipped_backoff_total", MESSAGES) == 5
    assert value("retry_job_documents_skipped_total", {**MESSAGES, "reason": "backoff"}) == 5
    assert value("retry_job_documents_max_retries_exceeded_total", MESSAGES) == 3
    assert value("retry_job_runs_total", {"status": "failure"}) == 1
    assert value("retry_job_errors_total", {"error_type": "TimeoutError"}) == 1
    assert value("retry_job_stuck_documents", MESSAGES) == 7
    assert value("retry_job_failed_documents", MESSAGES) == 3
    assert value("retry_job_permanently_failed_documents", MESSAGES) == 2
    assert value("retry_job_oldest_stuck_seconds", MESSAGES) == 30 * 3600
    assert value("retry_job_held_back_documents", MESSAGES) == 4
    assert value("retry_job_database_up") == 1
    assert value("retry_job_last_run_timestamp_seconds") == NOW.timestamp()


def test_the_duration_is_a_histogram_that_prometheus_can_read() -> None:
    value = shown(figures()).get_sample_value
    found = [
        value("retry_job_duration_seconds_bucket", {"le": bound})
        for bound in ("0.1", "0.5", "10.0", "30.0", "3600.0", "+Inf")
    ]
    assert found == [0, 1, 1, 2, 2, 2]
    assert value("retry_job_duration_seconds_count") == 2
    assert value("retry_job_duration_seconds_sum") == pytest.approx(20.2)


def test_what_has_not_happened_yet_is_0_and_not_missing() -> None:
    """Else `increase()` would not see the first of each."""
    value = shown(figures()).get_sample_value
    assert value("retry_job_documents_skipped_total", {**MESSAGES, "reason": Skip.DOWN}) == 0
    assert value("retry_job_errors_total", {"error_type": KNOWN_ERRORS[0]}) == 0
    nothing = shown(SweepFigures(at=NOW, collections=("a",), tallies={}, totals={}))
    assert nothing.get_sample_value("retry_job_runs_total", {"status": "failure"}) == 0
    assert nothing.get_sample_value("retry_job_duration_seconds_count") == 0
    assert nothing.get_sample_value("retry_job_documents_requeued_total", {"collection": "a"}) == 0


def test_what_is_unknown_is_nan_with_the_database_down_and_counters_are_not_shown() -> None:
    registry = shown(figures({"messages": None}, known=False, held_back={"messages": None}))
    for gauge in ("stuck_documents", "failed_documents", "oldest_stuck_seconds"):
        assert isnan(registry.get_sample_value(f"retry_job_{gauge}", MESSAGES) or 0)
    assert isnan(registry.get_sample_value("retry_job_held_back_documents", MESSAGES) or 0)
    assert registry.get_sample_value("retry_job_database_up") == 0
    assert not any(name.endswith("_total") for name in names(registry))
    assert "retry_job_duration_seconds" not in names(registry)


def test_counters_that_were_shown_stay_while_the_database_is_down() -> None:
    known, away = figures(), figures({"messages": None}, known=False)
    registry = shown(replace(away, last_totals=known.totals))
    assert isnan(registry.get_sample_value("retry_job_stuck_documents", MESSAGES) or 0)
    assert registry.get_sample_value("retry_job_database_up") == 0
    counters = {name for name in names(shown(known)) if name.endswith(("_total", "_seconds"))}
    assert counters <= names(registry)
    assert registry.get_sample_value("retry_job_documents_requeued_total", MESSAGES) == 12


def test_one_unknown_collection_says_that_the_database_is_down_and_hides_no_other() -> None:
    registry = shown(figures({"messages": TALLY, "chunks": None}))
    assert registry.get_sample_value("retry_job_stuck_documents", MESSAGES) == 7
    chunks = {"collection": "chunks"}
    assert isnan(registry.get_sample_value("retry_job_stuck_documents", chunks) or 0)
    assert registry.get_sample_value("retry_job_database_up") == 0


@pytest.mark.parametrize(
    ("tally", "age"),
    [
        (Tally(stuck=0, given_up=0), 0.0),
        (Tally(stuck=0, given_up=9, oldest=None), 0.0),
        (Tally(stuck=1, given_up=0, oldest=NOW - HOUR), 3600.0),
        (Tally(stuck=1, given_up=0, oldest=NOW + HOUR), 0.0),  # clocks differ
    ],
)
def test_the_age_of_the_oldest(tally: Tally, age: float) -> None:
    registry = shown(figures({"messages": tally}))
    assert registry.get_sample_value("retry_job_oldest_stuck_seconds", MESSAGES) == age


def test_the_age_of_what_bears_no_time_is_unknown_though_the_database_answers() -> None:
    registry = shown(figures({"messages": Tally(stuck=2, given_up=0)}))
    assert isnan(registry.get_sample_value("retry_job_oldest_stuck_seconds", MESSAGES) or 0)
    assert registry.get_sample_value("retry_job_database_up") == 1


def test_before_the_first_run_nothing_is_said_about_runs_of_this_process() -> None:
    found = names(shown(figures(last_run=None, held_back={})))
    assert not found & {"retry_job_last_run_timestamp_seconds", "retry_job_held_back_documents"}


def test_a_total_of_a_newer_version_is_left_out() -> None:
    registry = shown(figures(stored={"retry_job_new_total|kind=x": 1, "retry_job_odd": 2}))
    assert names(registry) == {metric.name for metric in SWEEPS}


def test_collections_with_odd_names_are_shown_as_they_are() -> None:
    odd = 'it\'s|a="b"\n✓'
    stored = {f"retry_job_documents_requeued_total|collection={odd}": 2.0}
    registry = shown(figures({odd: TALLY}, stored=stored))
    label = {"collection": odd}
    assert registry.get_sample_value("retry_job_documents_requeued_total", label) == 2
    assert registry.get_sample_value("retry_job_stuck_documents", label) == 7
    assert generate_latest(registry)


@pytest.mark.server("prometheus")  # promtool comes with it
@pytest.mark.parametrize("known", [True, False])
def test_promtool_has_nothing_to_complain_about(known: bool) -> None:  # noqa: FBT001
    of = figures(known=known, tallies={"messages": TALLY if known else None})
    checked = subprocess.run(
        ["promtool", "check", "metrics"],  # noqa: S607
        input=generate_latest(shown(of)),
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, b"")


def test_what_a_run_held_back_is_unknown_where_it_did_not_get_so_far() -> None:
    ended = SweepEnded(
        status=Status.FAILURE,
        ended=NOW,
        elapsed=HOUR,
        collections=(
            CollectionSwept(collection="all", held_back=0, tally=TALLY),
            CollectionSwept(collection="some", held_back=5),
            CollectionSwept(collection="broken"),
        ),
    )
    found = held_back(ended, ["all", "some", "broken", "other"])
    assert found == {"all": 0, "some": 5, "broken": None, "other": None}


def test_the_observer_of_events_leaves_sweeps_to_the_store() -> None:
    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    before = generate_latest(registry)
    observer.tell(SweepEnded(status=Status.SUCCESS, ended=NOW, elapsed=HOUR, collections=()))
    assert generate_latest(registry) == before
