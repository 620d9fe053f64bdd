"""Which queues may be taken from now: all, unless a dependency is down or a type is paused."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from headway.runtime.recover import Recovery

_SAMPLE = 100
"""Events among which a probe of a paused type is chosen: those at the head may all be bad."""


@dataclass(slots=True)
class Plan:
    """What may be taken at one moment."""

    open: list[str] = field(default_factory=list)
    probes: dict[str, int] = field(default_factory=dict)
    """Queues of which one event may be tried, and among how many it is chosen."""
    next_probe: datetime | None = None
    """When to look again, if anything is closed."""


class Gate:
    """Opens and closes the queues of the services in one process."""

    def __init__(self, recoveries: Iterable[Recovery]) -> None:
        self._recoveries = list(recoveries)
        self._probing: set[str] = set()

    def plan(self, now: datetime) -> Plan:
        """Say which queues may be taken from."""
        plan = Plan()
        for recovery in self._recoveries:
            for queue, guard in recovery.floods.items():
                if guard.paused_since is not None:
                    if queue not in self._probing and guard.may_probe(now):
                        plan.probes[queue] = _SAMPLE
                elif recovery.health.untroubled:
                    plan.open.append(queue)
                else:
                    self._judge(recovery, queue, plan, now)
        return plan

    def _judge(self, recovery: Recovery, queue: str, plan: Plan, now: datetime) -> None:
        down = [kind for kind in _types(recovery, queue) if recovery.health.down(kind)]
        if not down:
            plan.open.append(queue)
            return
        due = max(recovery.health.next_probe(kind) or now for kind in down)
        if queue in self._probing:
            return
        if due <= now:
            plan.probes[queue] = 1
        elif plan.next_probe is None or due < plan.next_probe:
            plan.next_probe = due

    def probing(self, recovery: Recovery, queue: str, now: datetime) -> None:
        """Take down that an event of a closed queue is being tried."""
        self._probing.add(queue)
        for kind in _types(recovery, queue):
            recovery.health.probing(kind, now)

    @property
    def is_probing(self) -> bool:
        """Some event of a closed queue is being tried."""
        return bool(self._probing)

    def probed(self, queue: str) -> None:
        """Take down that the probe has ended, one way or the other."""
        self._probing.discard(queue)


def _types(recovery: Recovery, queue: str) -> list[str]:
    return [kind for name, kind in recovery.service.subscriptions if name == queue]
