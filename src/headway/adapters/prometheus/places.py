"""The engine's counts as gauges, read anew at each scrape."""

import logging
from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headway.core import metrics
from headway.core.failure import words
from headway.core.metric import Metric
from headway.core.secrets import hidden
from headway.ports.clock import Clock
from headway.ports.places import Depths


class PlacesCollector(Collector):
    """Asks for the depths and shows them; register it with a registry of prometheus-client.

    If they cannot be had, only `headway_engine_up 0` is shown: a zero, or a number from
    before, would look like an answer.
    """

    def __init__(self, depths: Callable[[], Depths], clock: Clock) -> None:
        self._depths = depths
        self._clock = clock
        self._was_up = True

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Name the gauges without asking the engine."""
        return [_family(metric) for metric in metrics.PLACES]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        try:
            depths = self._depths()
        except Exception as error:  # noqa: BLE001 (whatever a driver raises: none is imported)
            # Said once for each outage, in one line: scrapes go on, and the gauge tells the rest.
            if self._was_up:
                logging.getLogger("headway").error(  # noqa: TRY400 (see above)
                    "The engine could not be asked for its counts (%s); %s is 0 until it can",
                    hidden(words(error)) or type(error).__name__,
                    metrics.ENGINE_UP.name,
                )
            self._was_up = False
            return [_family(metrics.ENGINE_UP, 0)]
        self._was_up = True
        return self._families(depths)

    def _families(self, depths: Depths) -> list[GaugeMetricFamily]:
        now = self._clock.now()
        depth = _family(metrics.QUEUE_DEPTH)
        oldest = _family(metrics.QUEUE_OLDEST_AGE)
        suspects = _family(metrics.QUEUE_SUSPECTS)
        letters = _family(metrics.FAILED_LETTERS)
        for one in depths.queues:
            depth.add_metric([one.queue, "ready"], one.ready)
            if depths.counts_leased:
                depth.add_metric([one.queue, "leased"], one.leased)
            depth.add_metric([one.queue, "delayed"], one.delayed)
            depth.add_metric([one.queue, "parked"], one.parked)
            depth.add_metric([one.queue, "held"], one.held)
            suspects.add_metric([one.queue], one.suspects)
            if one.oldest or not one.ready:  # else the engine cannot say: a zero would be a lie
                age = (now - one.oldest).total_seconds() if one.oldest else 0.0
                oldest.add_metric([one.queue], max(age, 0.0))  # clocks of two machines may differ
        for queue, number in depths.failed.items():
            letters.add_metric([queue], number)
        found = [_family(metrics.ENGINE_UP, 1), depth, oldest, suspects, letters]
        found.append(_family(metrics.UNROUTED_EVENTS, depths.unrouted))
        if depths.workers is not None:
            found.append(_family(metrics.WORKERS, depths.workers))
        return found


def _family(metric: Metric, value: float | None = None) -> GaugeMetricFamily:
    if value is not None:
        return GaugeMetricFamily(metric.name, metric.meaning, value=value)
    return GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
