"""The metrics of all processes of a consumer, as its store has added them up.

Processes that died are in them, and those of Celery: nobody has to be asked but the store.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from headway.metrics import Metric
from headway.order import LoopThread
from headway.prometheus import served
from headway.systems.uptime.metrics import CATALOGUE, bucket_name, labels_in
from headway.systems.uptime.opening import open_store
from headway.systems.uptime.settings import UptimeSettings

Counts = Mapping[str, float]
_LOG = logging.getLogger("headway")


class StoreCollector(Collector):
    """Asks for the counts at every scrape."""

    def __init__(self, ask: Callable[[], Counts]) -> None:
        self._ask = ask

    def describe(self) -> Iterable[Family]:
        return []  # without it, the registry would ask the store when this is registered

    def collect(self) -> Iterator[Family]:
        counts = self._ask()
        for metric in CATALOGUE:
            yield (
                _histogram(metric, counts)
                if metric.kind == "histogram"
                else _counter(metric, counts)
            )


def _counter(metric: Metric, counts: Counts) -> Family:
    family = CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    if not metric.labels:
        family.add_metric([], counts.get(metric.name, 0))
        return family
    for name, value in counts.items():
        labels = labels_in(metric, name)
        if labels is not None:
            family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, counts: Counts) -> Family:
    family = HistogramMetricFamily(metric.name, metric.meaning)
    buckets, sum_so_far = [], 0.0
    for bound in metric.buckets:
        sum_so_far += counts.get(bucket_name(metric, bound), 0)
        buckets.append((f"{float(bound)}", sum_so_far))
    buckets.append(("+Inf", counts.get(f"{metric.name}_count", 0)))
    family.add_metric([], buckets, counts.get(f"{metric.name}_sum", 0))
    return family


@contextmanager
def metrics_page(settings: UptimeSettings, *, host: str, port: int) -> Iterator[int]:
    """Serve /metrics and /health while the block lasts; give the port."""
    thread, store = LoopThread("headway-uptime-metrics"), open_store(settings)
    try:
        thread.run(store.prepare())
        collector = StoreCollector(lambda: thread.run(store.counts()))
        with served(CollectorRegistry(), collector, _health, host=host, port=port) as at:
            _LOG.info("Metrics are at http://%s:%d/metrics", host, at)
            yield at
    finally:
        thread.run(store.close())
        thread.close()


def _health() -> tuple[HTTPStatus, dict[str, str]]:
    return HTTPStatus.OK, {"status": "ok"}
