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


_PROBES_AT_ONCE = 5
_REMEMBERED = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodRule:
    """When permanent failures of one event type are taken for a bad deploy.

    Only failures of handlers count, and only by a built-in rule (KeyError, TypeError, ...): what a
    rule of your own calls permanent, and what `data=` refuses, is an answer to one client.
    """

    at_least: int = 20
    """So many permanent failures of one event type pause it,"""
    within: timedelta = timedelta(minutes=1)
    """in so short a time,"""
    share: float = 0.5
    """if they are more than this part of all that was handled."""
    probe_every: timedelta = timedelta(minutes=1)
    """While it is paused, the longest wait between two probes. The first ones follow sooner."""


@dataclass(slots=True)
class FloodGuard:
    """Watches how the events of one queue end, and pauses it when a deploy fails them all.

    Bad clients make some events fail, a bad deploy all of them. So the first probes go at once, and
    further ones after 1, 2, 4 ... seconds. One that succeeds ends the pause, and for an hour it
    takes twice as many failures to pause again: bad clients are the likely cause.
    """

    rule: FloodRule = field(default_factory=FloodRule)
    paused_since: datetime | None = None
    uncounted: int = 0
    """Successes since the last call of `ended`: a worker counts them together."""
    _ends: deque[tuple[datetime, int, int]] = field(default_factory=deque)
    """When, how many, and how many of these permanent."""
    _handled: int = 0
    _permanent: int = 0
    _needed: int = 0
    """So many permanent failures pause it: as the rule says, or more after a probe succeeded."""
    _probes: int = 0
    _next_probe: datetime | None = None
    _resumed: datetime | None = None
    """By a probe."""

    def __post_init__(self) -> None:
        self._needed = self.rule.at_least

    @property
    def handled(self) -> int:
        """How many ends were counted last."""
        return self._handled

    @property
    def permanent(self) -> int:
        """How many of these were permanent failures."""
        return self._permanent

    def ended(self, now: datetime, *, permanent: int = 0) -> None:
        """Count permanent failures, after the successes that are not counted yet."""
        if self.uncounted:
            self._count(now, self.uncounted, permanent=False)
            self.uncounted = 0
        if permanent:
            self._count(now, permanent, permanent=True)

    def _count(self, now: datetime, count: int, *, permanent: bool) -> None:
        if self.paused_since is not None:
            if not permanent:
                needed = self._needed * 2
                self.resume()
                self._needed, self._resumed = needed, now
            return
        if self._resumed is not None and now - self._resumed > _REMEMBERED:
            self._needed, self._resumed = self.rule.at_least, None
        self._ends.append((now, count, count * permanent))
        self._handled += count
        self._permanent += count * permanent
        while now - self._ends[0][0] > self.rule.within:
            _, handled, ended = self._ends.popleft()
            self._handled -= handled
            self._permanent -= ended
        # A success may complete the share: replaying dead letters after a repair must not pause.
        if (
            permanent
            and self._permanent >= self._needed
            and self._permanent > self._handled * self.rule.share
        ):
            self.paused_since = self._next_probe = now
            self._probes = 0

    def may_probe(self, now: datetime) -> bool:
        """Say whether one event may be tried although the others wait."""
        return self._next_probe is not None and now >= self._next_probe

    def probing(self, now: datetime) -> None:
        """Note that one is being tried."""
        if self.paused_since is not None:
            self._probes += 1
            if self._probes >= _PROBES_AT_ONCE:
                # 2**30 is far beyond any useful wait, and larger powers overflow a timedelta.
                wait = timedelta(seconds=2 ** min(self._probes - _PROBES_AT_ONCE, 30))
                self._next_probe = now + min(wait, self.rule.probe_every)

    def resume(self) -> None:
        """Start afresh: a probe succeeded, or a person said so."""
        self.paused_since = self._next_probe = self._resumed = None
        self._needed = self.rule.at_least
        self._ends.clear()
        self._handled = self._permanent = 0
