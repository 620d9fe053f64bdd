"""How a dependency is doing: well, suspected or down; and who may try whether it is back.

One item that fails again and again is the item's own trouble. Many different items that fail by the
same infrastructure rule, with no success between them, are an outage: then nobody's attempts should
be used up, and one probe finds out when it is over.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from headway.core.errors import ConfigurationError


class Health(StrEnum):
    """The state of what the work depends on."""

    WELL = "well"
    SUSPECTED = "suspected"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageRule:
    """When a dependency counts as down, and how often it is probed then."""

    distinct: int = 5
    """So many different items must fail in a row."""
    probe_every: timedelta = timedelta(seconds=1)
    """Wait before the first probe, doubling from one to the next."""
    probe_at_most: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if self.distinct < 1:
            raise ConfigurationError(
                f"distinct={self.distinct!r} is not accepted: use a whole number from 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """What is known of one dependency; every method gives the state that follows."""

    rule: OutageRule = OutageRule()
    failing: frozenset[str] = frozenset()
    """Items that failed by it since the last success."""
    down_since: datetime | None = None
    probes: int = 0
    next_probe: datetime | None = None

    @property
    def health(self) -> Health:
        if self.down_since is not None:
            return Health.DOWN
        return Health.SUSPECTED if self.failing else Health.WELL

    def failed(self, item: str, now: datetime) -> "Dependency":
        """Take down that an item failed by a rule about this dependency."""
        if self.down_since is not None:
            return self  # it is known already, and counting more would only cost memory
        failing = self.failing | {item}
        if len(failing) < self.rule.distinct:
            return replace(self, failing=failing)
        return replace(self, failing=failing, down_since=now, next_probe=now + self._pause(0))

    def succeeded(self) -> "Dependency":
        """Take down a success: whatever it was, it is over."""
        return Dependency(rule=self.rule)

    def may_probe(self, now: datetime) -> bool:
        """Say whether somebody should try now whether it is back."""
        return self.next_probe is not None and now >= self.next_probe

    def probing(self, now: datetime) -> "Dependency":
        """Let one probe go; nobody else may until the next is due."""
        probes = self.probes + 1
        return replace(self, probes=probes, next_probe=now + self._pause(probes))

    def _pause(self, probes: int) -> timedelta:
        every, at_most = self.rule.probe_every, self.rule.probe_at_most
        # 2**30 is far beyond any useful pause, and larger powers overflow a timedelta.
        return min(every * 2 ** min(probes, 30), at_most) if every < at_most else at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodRule:
    """When a stream of permanent failures is taken for a bad deploy."""

    at_least: int = 20
    within: timedelta = timedelta(minutes=1)
    share: float = 0.5
    """More than this part of all that was handled."""
    probe_every: timedelta = timedelta(minutes=1)


@dataclass(slots=True)
class FloodGuard:
    """Watches how events end, and pauses a service that pours them into its failed queue."""

    rule: FloodRule = field(default_factory=FloodRule)
    paused_since: datetime | None = None
    _ends: deque[tuple[datetime, int, int]] = field(default_factory=deque)
    """When, how many, and how many of these permanent."""
    _handled: int = 0
    _permanent: int = 0
    _next_probe: datetime | None = None

    @property
    def handled(self) -> int:
        """How many ends were counted last."""
        return self._handled

    @property
    def permanent(self) -> int:
        """How many of these were permanent failures."""
        return self._permanent

    def ended(self, now: datetime, *, permanent: bool, count: int = 1) -> None:
        """Take down how events ended. Malformed and unroutable input is not told here."""
        if self.paused_since is not None:
            if not permanent:
                self.resume()
            return
        self._ends.append((now, count, count * permanent))
        self._handled += count
        self._permanent += count * permanent
        while now - self._ends[0][0] > self.rule.within:
            _, handled, ended = self._ends.popleft()
            self._handled -= handled
            self._permanent -= ended
        # A success may complete the count: whoever repairs something is not stopped by that.
        if (
            permanent
            and self._handled >= self.rule.at_least
            and self._permanent > self._handled * self.rule.share
        ):
            self.paused_since = now
            self._next_probe = now + self.rule.probe_every

    def may_take(self, now: datetime) -> bool:
        """Say whether an event may be taken: any while all is well, one a while when paused."""
        if self.paused_since is None:
            return True
        if self._next_probe is None or now < self._next_probe:
            return False
        self._next_probe = now + self.rule.probe_every
        return True

    def resume(self) -> None:
        """Begin anew: a probe succeeded, or a person said so."""
        self.paused_since = self._next_probe = None
        self._ends.clear()
        self._handled = self._permanent = 0
