"""Metrics of service authors: what is kept, what is refused, and which backend is chosen."""

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from headway import ConfigurationError
from headway.adapters.prometheus.collector import PrometheusMetricsCollector
from headway.metrics import NoOpMetricsCollector, create_metrics_collector
from headway.prometheus import PrometheusObserver


@pytest.fixture(params=["noop", "prometheus"])
def metrics(request: pytest.FixtureRequest) -> Any:
    """Give a collector of each kind: a mistake shows with every backend."""
    if request.param == "noop":
        return NoOpMetricsCollector()
    return PrometheusMetricsCollector(CollectorRegistry())


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_counts_values_and_gauges_are_exposed(registry: CollectorRegistry) -> None:
    PrometheusObserver(registry)  # they share a registry with the metrics of facts
    kept = PrometheusMetricsCollector(registry, buckets={"share": (0.25, 0.75)})
    kept.increment("chunks_created_total", 3)
    kept.increment("chunks_created_total")
    kept.increment("seen_total", tags={"a": "1", "b": "2"})
    kept.increment("seen_total", tags={"b": "2", "a": "1"})
    kept.observe("chunk_size_tokens", 300)
    kept.observe("share", 0.5)
    kept.gauge("buffer_depth", 4)
    kept.gauge("buffer_depth", 2)
    assert registry.get_sample_value("chunks_created_total") == 4
    assert registry.get_sample_value("seen_total", {"a": "1", "b": "2"}) == 2
    assert registry.get_sample_value("chunk_size_tokens_bucket", {"le": "200.0"}) == 0
    assert registry.get_sample_value("chunk_size_tokens_bucket", {"le": "500.0"}) == 1
    assert registry.get_sample_value("share_bucket", {"le": "0.75"}) == 1
    assert registry.get_sample_value("buffer_depth") == 2


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (lambda m: m.increment("chunks"), "chunks_total"),
        (lambda m: m.gauge("chunks_total", 1), "increment()"),
        (lambda m: m.observe("chunk.size", 1), "chunk.size"),
        (lambda m: m.observe("chunk_count", 1), "chunk_count"),
        (lambda m: m.increment(None), "None"),
        (lambda m: m.increment("a_total", -1), "-1"),
        (lambda m: m.observe("a", float("nan")), "nan"),
        (lambda m: m.gauge("a", "many"), "'many'"),
        (lambda m: m.increment("a_total", tags={"not-good": "1"}), "'not-good'"),
        (lambda m: m.increment("a_total", tags={"__name__": "1"}), "'__name__'"),
        (lambda m: m.observe("a", 1, tags={"le": "1"}), "'le'"),
        (lambda m: m.increment("events_processed_total"), "events_processed_total"),
        (lambda m: m.increment("retry_job_runs_total"), "retry_job_runs_total"),
    ],
)
def test_what_cannot_be_measured_is_refused_each_time(
    metrics: Any, use: Callable[[Any], None], named: str
) -> None:
    for _ in range(2):  # a mistake that shows once is a mistake that is missed
        with pytest.raises(ConfigurationError) as refused:
            use(metrics)
        assert named in str(refused.value)


@pytest.mark.parametrize(
    "use",
    [
        lambda m: m.gauge("size", 1, tags={"kind": "a"}),
        lambda m: m.observe("size", 1),
        lambda m: m.observe("size", 1, tags={"kind": "a", "more": "b"}),
    ],
)
def test_a_name_keeps_its_kind_and_its_tags(metrics: Any, use: Callable[[Any], None]) -> None:
    metrics.observe("size", 1, tags={"kind": "a"})
    with pytest.raises(ConfigurationError, match="size"):
        use(metrics)
    metrics.observe("size", 2, tags={"kind": "b"})


def test_a_name_that_another_collector_registered_is_refused(registry: CollectorRegistry) -> None:
    PrometheusMetricsCollector(registry).gauge("depth", 1)
    with pytest.raises(ConfigurationError, match="depth"):
        PrometheusMetricsCollector(registry).gauge("depth", 1)


def test_many_threads_may_use_a_name_for_the_first_time(registry: CollectorRegistry) -> None:
    kept = PrometheusMetricsCollector(registry)
    start = threading.Barrier(8)

    def count() -> None:
        start.wait()
        for number in range(200):
            kept.increment(f"n{number % 20}_total")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [registry.get_sample_value(f"n{number}_total") for number in range(20)]
    assert found == [80] * 20


@pytest.mark.parametrize("given", [None, "", " NoOp ", "prometheus", "prometheus_pushgateway"])
def test_the_backend_is_chosen_by_its_name(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("METRICS_BACKEND", raising=False)
    if given is not None:
        monkeypatch.setenv("METRICS_BACKEND", given)
    found = create_metrics_collector()
    if given in ("prometheus", "prometheus_pushgateway"):
        assert isinstance(found, PrometheusMetricsCollector)
        assert create_metrics_collector() is found  # one for the whole process
    else:
        assert isinstance(found, NoOpMetricsCollector)


def test_an_unknown_backend_and_a_missing_library_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("METRICS_BACKEND", "statsd")
    with pytest.raises(ConfigurationError, match="METRICS_BACKEND='statsd'"):
        create_metrics_collector()
    monkeypatch.setenv("METRICS_BACKEND", "prometheus")
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from headway.metrics import create_metrics_collector\n"
        "create_metrics_collector()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    last = ended.stderr.splitlines()[-1]
    assert "ConfigurationError" in last
    assert "headway[prometheus]" in last
