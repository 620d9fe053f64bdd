"""Metrics that nobody keeps."""

from collections.abc import Mapping

from headway.core.measuring import Measures


class NoOpMetricsCollector:
    """For tests, and for processes without metrics. It refuses what a real one would refuse."""

    def __init__(self) -> None:
        self._measures = Measures()

    def increment(self, name: str, value: float = 1, tags: Mapping[str, str] | None = None) -> None:
        self._measures.check("counter", name, value, tags)

    def observe(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        self._measures.check("histogram", name, value, tags)

    def gauge(self, name: str, value: float, tags: Mapping[str, str] | None = None) -> None:
        self._measures.check("gauge", name, value, tags)
