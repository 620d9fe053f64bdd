"""What sweeps did and what is stuck, as families of prometheus-client."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from math import nan

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from headway.core import sweep_metrics
from headway.core.metric import Metric
from headway.core.sweep_figures import SweepFigures
from headway.core.sweep_totals import from_zero, parsed
from headway.core.tally import Tally

_UNKNOWN = nan
_LAST_BUCKET = "+Inf"


class SweepCollector(Collector):
    """Asks for figures and shows them; register it with a registry of prometheus-client."""

    def __init__(self, look: Callable[[], SweepFigures]) -> None:
        self._look = look

    def describe(self) -> Iterable[Family]:
        """Name the families without asking the store."""
        return [*(_counter(metric) for metric in _COUNTERS), *map(_gauge, _GAUGES), _histogram()]

    def collect(self) -> Iterable[Family]:
        return families(self._look())


def families(figures: SweepFigures) -> list[Family]:
    """Give what is to be shown. Without totals no counters: a 0 would look like a new beginning.

    While the store is away they stand still, where they were shown before: one that is gone for a
    while would hide its increase from `increase()`, and its alert would clear.
    """
    shown: list[Family] = [*_gauges(figures)]
    totals = figures.last_totals if figures.totals is None else figures.totals
    if totals is not None:
        shown += _totals({**from_zero(figures.collections), **totals})
    return shown


def _totals(totals: Mapping[str, float]) -> list[Family]:
    counters = {metric.name: (metric, _counter(metric)) for metric in _COUNTERS}
    buckets: dict[str, float] = {}
    for key, value in totals.items():
        name, labels = parsed(key)
        if name in counters:
            metric, family = counters[name]
            family.add_metric([labels.get(label, "") for label in metric.labels], value)
        elif name == f"{sweep_metrics.DURATION.name}_bucket":
            buckets[labels.get("le", _LAST_BUCKET)] = value
        # Whatever else there is was written by a newer version, and is not ours to show.
    duration = _histogram()
    ordered = sorted(buckets.items(), key=lambda bucket: float(bucket[0]))
    duration.add_metric([], ordered, totals[f"{sweep_metrics.DURATION.name}_sum"])
    return [*(family for _, family in counters.values()), duration]


def _gauges(figures: SweepFigures) -> Iterable[GaugeMetricFamily]:
    stuck, failed = _gauge(sweep_metrics.STUCK), _gauge(sweep_metrics.FAILED)
    permanent = _gauge(sweep_metrics.PERMANENT)
    oldest, held = _gauge(sweep_metrics.OLDEST_STUCK), _gauge(sweep_metrics.HELD_BACK)
    for collection, tally in figures.tallies.items():
        stuck.add_metric([collection], _UNKNOWN if tally is None else tally.stuck)
        failed.add_metric([collection], _UNKNOWN if tally is None else tally.given_up)
        permanent.add_metric([collection], _UNKNOWN if tally is None else tally.permanent)
        oldest.add_metric([collection], _UNKNOWN if tally is None else _age(tally, figures.at))
    for collection, number in figures.held_back.items():
        held.add_metric([collection], _UNKNOWN if number is None else number)
    up = GaugeMetricFamily(
        sweep_metrics.DATABASE_UP.name,
        sweep_metrics.DATABASE_UP.meaning,
        value=figures.database_up,
    )
    # A family without a sample is not named: to a Pushgateway that would be an order to forget it.
    shown = (stuck, failed, permanent, oldest, held, up)
    yield from (family for family in shown if family.samples)
    if figures.last_run is not None:
        yield GaugeMetricFamily(
            sweep_metrics.LAST_RUN.name,
            sweep_metrics.LAST_RUN.meaning,
            value=figures.last_run.timestamp(),
        )


def _age(tally: Tally, at: datetime) -> float:
    if not tally.stuck:
        return 0.0
    if tally.oldest is None:
        return _UNKNOWN
    return max((at - tally.oldest).total_seconds(), 0.0)  # clocks of two machines may differ


def _counter(metric: Metric) -> CounterMetricFamily:
    return CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)


def _gauge(metric: Metric) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)


def _histogram() -> HistogramMetricFamily:
    metric = sweep_metrics.DURATION
    return HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)


_COUNTERS = tuple(metric for metric in sweep_metrics.SWEEPS if metric.kind == "counter")
_GAUGES = tuple(metric for metric in sweep_metrics.SWEEPS if metric.kind == "gauge")
