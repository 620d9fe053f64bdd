"""Which queues may be taken from now: all, unless a dependency is down or a service has paused."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from headway.core.facts import FloodChanged
from headway.core.health import FloodGuard
from headway.runtime.recover import Recovery


@dataclass(slots=True)
class Plan:
    """What may be taken at one moment."""

    open: list[str] = field(default_factory=list)
    probes: list[str] = field(default_factory=list)
    """Queues of which one event may be tried."""
    next_probe: datetime | None = None
    """When to look again, if anything is closed."""


class Gate:
    """Opens and closes the queues of the services in one process."""

    def __init__(self, recoveries: Iterable[Recovery]) -> None:
        self._recoveries = list(recoveries)
        self._floods = {
            recovery.service.name: FloodGuard(recovery.service.flood)
            for recovery in self._recoveries
        }
        self._probing: set[str] = set()
        self._queues = {
            recovery.service.name: [queue.name for queue in recovery.service.queues()]
            for recovery in self._recoveries
        }

    def plan(self, now: datetime) -> Plan:
        """Say which queues may be taken from."""
        plan = Plan()
        for recovery in self._recoveries:
            queues = self._queues[recovery.service.name]
            flood = self._floods[recovery.service.name]
            if flood.paused_since is None and recovery.health.untroubled:
                plan.open.extend(queues)
            elif flood.paused_since is None:
                for queue in queues:
                    self._judge(recovery, queue, plan, now)
            elif not self._probing.intersection(queues) and flood.may_take(now):
                plan.probes.extend(queues)
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
            plan.probes.append(queue)
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

    def ended(
        self, recovery: Recovery, now: datetime, *, permanent: bool, count: int = 1
    ) -> FloodChanged | None:
        """Take down how events ended; say if the service has just paused or goes on again."""
        flood = self._floods[recovery.service.name]
        before = flood.paused_since
        flood.ended(now, permanent=permanent, count=count)
        if (before is None) is (flood.paused_since is None):
            return None
        return FloodChanged(
            service=recovery.service.name,
            paused=flood.paused_since is not None,
            permanent=flood.permanent,
            handled=flood.handled,
        )

    def resume(self) -> Sequence[FloodChanged]:
        """A person said to go on."""
        paused = [name for name, flood in self._floods.items() if flood.paused_since is not None]
        for name in paused:
            self._floods[name].resume()
        return [FloodChanged(service=name, paused=False) for name in paused]


def _types(recovery: Recovery, queue: str) -> list[str]:
    return [kind for name, kind in recovery.service.subscriptions if name == queue]
