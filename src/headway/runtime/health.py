"""Watch how the dependencies of one service's events are doing, and who may probe them.

What an event depends on is known by the rule that its failure matched, so each event type has its
own view of each rule. Only rules of the catalogue count: an error that no rule knows says nothing
about the infrastructure.
"""

from collections import deque
from dataclasses import dataclass, replace
from datetime import datetime

from headway.core.facts import HealthChanged
from headway.core.failure import Diagnosis, Verdict
from headway.core.health import Dependency, Health, OutageRule
from headway.core.travel import Travel

CONFLICT = "OC000_TRANSACTION_CONFLICT"
"""Who loses against another transaction has met a store that works."""
_OUTAGES_REMEMBERED = 100


@dataclass(frozen=True, slots=True)
class _Outage:
    event_type: str
    rule: str
    since: datetime
    """When the first of the failures happened that turned out to be the outage."""
    until: datetime | None = None
    """When it was over: what fails afterwards is counted again."""


class HealthWatch:
    """The memory of one service in one process."""

    def __init__(self, service: str, rule: OutageRule) -> None:
        self._service = service
        self._rule = rule
        self._dependencies: dict[tuple[str, str], Dependency] = {}
        self._first_failed: dict[tuple[str, str], datetime] = {}
        self._outages: deque[_Outage] = deque(maxlen=_OUTAGES_REMEMBERED)

    def failed(
        self, event_type: str, diagnosis: Diagnosis, item: str, now: datetime
    ) -> tuple[Health, HealthChanged | None]:
        """Take down a failure; say how its dependency is doing, and if that has just changed."""
        if not _is_infrastructure(diagnosis):
            return Health.WELL, None
        name = (event_type, diagnosis.rule)
        before = self._dependencies.get(name) or Dependency(rule=self._rule)
        after = self._dependencies[name] = before.failed(item, now)
        first = self._first_failed.setdefault(name, now)
        if after.health is not Health.DOWN or before.health is Health.DOWN:
            return after.health, None
        self._outages.append(_Outage(event_type, diagnosis.rule, first))
        changed = HealthChanged(
            service=self._service,
            event_type=event_type,
            rule=diagnosis.rule,
            down=True,
            last_error=type(diagnosis.found).__name__,
        )
        return Health.DOWN, changed

    def succeeded(self, event_type: str, now: datetime) -> list[HealthChanged]:
        """Take down a success: whatever was wrong for this type of event is over."""
        back = []
        for name in [name for name in self._dependencies if name[0] == event_type]:
            dependency = self._dependencies.pop(name)
            self._first_failed.pop(name, None)
            if dependency.down_since is not None:
                self._over(event_type, name[1], now)
                back.append(
                    HealthChanged(
                        service=self._service,
                        event_type=event_type,
                        rule=name[1],
                        down=False,
                        lasted=now - dependency.down_since,
                    )
                )
        return back

    def _over(self, event_type: str, rule: str, now: datetime) -> None:
        for index, outage in enumerate(self._outages):
            if (outage.event_type, outage.rule, outage.until) == (event_type, rule, None):
                self._outages[index] = replace(outage, until=now)

    def worked(self, event_type: str) -> None:
        """Take down that a handler has returned: a mere suspicion is over.

        Whether a dependency that was down is back is said by `succeeded`, once it is committed.
        """
        suspected = [
            name
            for name, dependency in self._dependencies.items()
            if name[0] == event_type and dependency.health is Health.SUSPECTED
        ]
        for name in suspected:
            del self._dependencies[name]
            self._first_failed.pop(name, None)

    @property
    def untroubled(self) -> bool:
        """Nothing has failed since the last success, for any event type."""
        return not self._dependencies

    def down(self, event_type: str) -> str | None:
        """Give the rule by which this type of event cannot be worked on now, if there is one."""
        for (kind, rule), dependency in self._dependencies.items():
            if kind == event_type and dependency.health is Health.DOWN:
                return rule
        return None

    def next_probe(self, event_type: str) -> datetime | None:
        """Say when somebody may try next whether it is back."""
        return max(
            (
                dependency.next_probe
                for (kind, _), dependency in self._dependencies.items()
                if kind == event_type and dependency.next_probe is not None
            ),
            default=None,
        )

    def probing(self, event_type: str, now: datetime) -> None:
        """Let one probe go."""
        for name, dependency in self._dependencies.items():
            if name[0] == event_type and dependency.health is Health.DOWN:
                self._dependencies[name] = dependency.probing(now)

    def forgiven(self, event_type: str, travel: Travel, now: datetime) -> Travel:
        """Give back attempts that fell into an outage, or led to its discovery, and their time."""
        if not travel.history:
            return travel
        for outage in self._outages:
            if outage.event_type == event_type:
                travel = travel.given_back(outage.rule, outage.since, outage.until)
        return travel if travel.failures else travel.anew(now)


def _is_infrastructure(diagnosis: Diagnosis) -> bool:
    """Tell what a dependency did from what two writers did to each other, and from the unknown."""
    return (
        diagnosis.verdict is Verdict.TRANSIENT
        and diagnosis.rule != "unmatched"
        and not diagnosis.rule.startswith("headway.")
        and diagnosis.error_type != CONFLICT
    )
