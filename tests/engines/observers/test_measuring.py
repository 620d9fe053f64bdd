"""Metrics of service authors: what is kept, what is refused, and which backend is chosen."""

import sys
import threading
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from headway import ConfigurationError
from headway.adapters.prometheus.collector import PrometheusMetricsCollector
from headway.assembly import metrics as assembly
from headway.core.metrics import CATALOGUE
from headway.metrics import NoOpMetricsCollector, create_metrics_collector
from headway.ports.metrics import Metrics
from headway.prometheus import PrometheusObserver

BOTH: list[Callable[[], Metrics]] = [
    NoOpMetricsCollector,
    lambda: PrometheusMetricsCollector(CollectorRegistry()),
]


@pytest.fixture(params=BOTH, ids=["noop", "prometheus"])
def metrics(request: pytest.FixtureRequest) -> Metrics:
    made: Metrics = request.param()
    return made


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_counts_values_and_gauges_are_exposed(registry: CollectorRegistry) -> None:
    kept = PrometheusMetricsCollector(registry)
    kept.increment("chunks_created_total", 3)
    kept.increment("chunks_created_total")
    kept.increment("refused_total", tags={"error_type": "TimeoutError"})
    kept.observe("chunk_size_tokens", 300)
    kept.observe("embedding_seconds", 0.3, tags={"model": "small"})
    kept.gauge("buffer_depth", 4)
    kept.gauge("buffer_depth", 2)
    assert registry.get_sample_value("chunks_created_total") == 4
    assert registry.get_sample_value("refused_total", {"error_type": "TimeoutError"}) == 1
    assert registry.get_sample_value("chunk_size_tokens_bucket", {"le": "200.0"}) == 0
    assert registry.get_sample_value("chunk_size_tokens_bucket", {"le": "500.0"}) == 1
    label = {"model": "small", "le": "0.5"}
    assert registry.get_sample_value("embedding_seconds_bucket", label) == 1
    assert registry.get_sample_value("buffer_depth") == 2


def test_buckets_of_ones_own(registry: CollectorRegistry) -> None:
    kept = PrometheusMetricsCollector(registry, buckets={"share": (0.25, 0.75)})
    kept.observe("share", 0.5)
    assert registry.get_sample_value("share_bucket", {"le": "0.75"}) == 1


def test_the_order_of_tags_does_not_matter(registry: CollectorRegistry) -> None:
    kept = PrometheusMetricsCollector(registry)
    kept.increment("seen_total", tags={"a": "1", "b": "2"})
    kept.increment("seen_total", tags={"b": "2", "a": "1"})
    assert registry.get_sample_value("seen_total", {"a": "1", "b": "2"}) == 2


@pytest.mark.parametrize(
    ("use", "cure"),
    [
        (lambda m: m.increment("chunks"), "chunks_total"),
        (lambda m: m.gauge("chunks_total", 1), "increment()"),
        (lambda m: m.observe("chunk.size", 1), "letters, digits and underscores"),
        (lambda m: m.observe("chunk_count", 1), "added to names by Prometheus"),
        (lambda m: m.increment("", 1), "letters, digits and underscores"),
        (lambda m: m.increment(None), "letters, digits and underscores"),
        (lambda m: m.increment("a_total", -1), "a counter only grows"),
        (lambda m: m.observe("a", float("nan")), "use a number"),
        (lambda m: m.gauge("a", "many"), "use a number"),
        (lambda m: m.increment("a_total", tags={"not-good": "1"}), "'not-good'"),
        (lambda m: m.increment("a_total", tags={"__name__": "1"}), "'__name__'"),
        (lambda m: m.observe("a", 1, tags={"le": "1"}), "'le'"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_cure(
    metrics: Metrics, use: Callable[[Metrics], None], cure: str
) -> None:
    for _ in range(2):  # each time: a mistake that shows once is a mistake that is missed
        with pytest.raises(ConfigurationError) as refused:
            use(metrics)
        assert cure in str(refused.value)


def test_a_name_keeps_its_kind_and_its_tags(metrics: Metrics) -> None:
    metrics.observe("size", 1, tags={"kind": "a"})
    with pytest.raises(ConfigurationError, match=r"gauge\(\) and was a histogram"):
        metrics.gauge("size", 1, tags={"kind": "a"})
    with pytest.raises(ConfigurationError, match="has the tags none and had kind before"):
        metrics.observe("size", 1)
    with pytest.raises(ConfigurationError, match="has the tags kind, more and had kind"):
        metrics.observe("size", 1, tags={"kind": "a", "more": "b"})
    metrics.observe("size", 2, tags={"kind": "b"})


@pytest.mark.parametrize("name", [metric.name for metric in CATALOGUE])
def test_what_headway_measures_itself_is_not_measured_twice(metrics: Metrics, name: str) -> None:
    with pytest.raises(ConfigurationError, match="measured by Headway itself"):
        metrics.increment(name)


def test_a_name_that_somebody_else_registered_is_refused(registry: CollectorRegistry) -> None:
    PrometheusMetricsCollector(registry).gauge("depth", 1)
    with pytest.raises(ConfigurationError, match="depth cannot be measured here: Duplicated"):
        PrometheusMetricsCollector(registry).gauge("depth", 1)


def test_it_shares_a_registry_with_the_metrics_of_facts(registry: CollectorRegistry) -> None:
    PrometheusObserver(registry)
    PrometheusMetricsCollector(registry).increment("items_processed_total")
    assert registry.get_sample_value("items_processed_total") == 1


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


class TestChoice:
    @pytest.fixture(autouse=True)
    def anew(self) -> None:
        assembly._prometheus.cache_clear()

    @pytest.mark.parametrize("given", [None, "", "noop", " NoOp "])
    def test_without_a_backend_nothing_is_kept(
        self, given: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("METRICS_BACKEND", raising=False)
        if given is not None:
            monkeypatch.setenv("METRICS_BACKEND", given)
        assert isinstance(create_metrics_collector(), NoOpMetricsCollector)

    @pytest.mark.parametrize("given", ["prometheus", "prometheus_pushgateway"])
    def test_prometheus_is_one_for_the_whole_process(
        self, given: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("METRICS_BACKEND", given)
        found = create_metrics_collector()
        assert isinstance(found, PrometheusMetricsCollector)
        assert create_metrics_collector() is found

    def test_others_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("METRICS_BACKEND", "statsd")
        cure = "Use one of: prometheus, prometheus_pushgateway, noop"
        with pytest.raises(ConfigurationError, match=f"METRICS_BACKEND='statsd'.*{cure}"):
            create_metrics_collector()

    def test_a_missing_library_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("METRICS_BACKEND", "prometheus")
        monkeypatch.delitem(sys.modules, "headway.adapters.prometheus.collector")
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        with pytest.raises(ConfigurationError, match=r"pip install '.*headway\[prometheus\]'"):
            create_metrics_collector()
