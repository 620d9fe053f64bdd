"""How late events begin: those that were put off for a second, and healthy ones meanwhile."""

import time
from dataclasses import dataclass, field

DELAY = 1.0


def percentile(figures: list[float], share: float) -> float:
    return sorted(figures)[min(int(len(figures) * share), len(figures) - 1)]


@dataclass
class Lateness:
    """What one consumer has seen; times are of the clock that all processes share."""

    failing: int
    healthy: int
    _failed: dict[str, float] = field(default_factory=dict)
    _late: list[float] = field(default_factory=list)
    _waited: list[float] = field(default_factory=list)

    def begins(self, event_id: str, data: dict[str, float]) -> bool:
        """Take down that an event is given to its handler, and say whether it must fail now."""
        now = time.monotonic()
        if not data["fails"]:
            self._waited.append(now - data["sent"])
            return False
        if event_id not in self._failed:
            self._failed[event_id] = time.monotonic()
            return True
        self._late.append(now - self._failed[event_id] - DELAY)
        return False

    @property
    def over(self) -> bool:
        return len(self._late) >= self.failing and len(self._waited) >= self.healthy

    def figures(self) -> dict[str, float]:
        if len(self._late) != self.failing or len(self._waited) != self.healthy:
            raise RuntimeError(f"seen {len(self._late)} put off, {len(self._waited)} healthy")
        return {
            "late p50": percentile(self._late, 0.5),
            "late p99": percentile(self._late, 0.99),
            "healthy p99": percentile(self._waited, 0.99),
        }
