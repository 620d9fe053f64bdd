"""The store in memory, for tests and demonstrations in one process."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain

from msgspec.structs import replace

from headway.systems.uptime.detecting import Incident
from headway.systems.uptime.effects import Change, Effect, Outcome, settle
from headway.systems.uptime.monitors import Detector, Monitor, Subscription
from headway.systems.uptime.results import CheckResult, CheckStatus
from headway.systems.uptime.store import Check, MonitorChange, Rejected, Totals


class MemoryStore:
    """Nothing here waits, so every call is one step for all tasks of the event loop."""

    def __init__(self) -> None:
        self.monitors: dict[str, Monitor] = {}
        self.incidents: list[tuple[str, Incident, int]] = []
        self.refused: list[Rejected] = []
        self._checks: dict[str, list[Check]] = {}
        self._misses: set[tuple[str, int]] = set()
        self._counts: dict[str, float] = {}

    async def prepare(self) -> None:
        """Nothing has to be made."""

    async def load(self, subscription_ids: Sequence[str]) -> Mapping[str, Monitor]:
        return {key: self.monitors[key] for key in subscription_ids if key in self.monitors}

    async def apply(self, effects: Sequence[Effect]) -> Sequence[Change]:
        return [self._apply(effect) for effect in effects]

    async def save(
        self, subscriptions: Sequence[Subscription], detectors: Mapping[str, Detector]
    ) -> None:
        for each in subscriptions:
            before = self.monitors.get(each.subscription_id, Monitor(each))
            detector = detectors.get(each.subscription_id)
            self.monitors[each.subscription_id] = replace(
                before, subscription=each, detector=detector
            )

    async def change(self, subscription_id: str, change: MonitorChange) -> None:
        monitor = self.monitors.get(subscription_id)
        if monitor is None:
            return
        if change.delete:
            del self.monitors[subscription_id]
        else:
            self.monitors[subscription_id] = changed(monitor, change)

    async def reject(self, raw: bytes, reason: str, at: datetime) -> None:
        self.refused.append(Rejected(raw, reason, at))

    async def close(self) -> None:
        """Nothing is open."""

    async def checks(self, subscription_id: str) -> Sequence[Check]:
        return list(self._checks.get(subscription_id, ()))

    async def totals(self) -> Totals:
        lines = list(chain.from_iterable(self._checks.values()))
        return Totals(
            subscriptions=len(self.monitors),
            applied=sum(monitor.applied for monitor in self.monitors.values()),
            results=sum(bool(line.guid) for line in lines),
            misses=len(self._misses),
            retracted=sum(line.retracted for line in lines),
            incidents=len(self.incidents),
            rejected=len(self.refused),
        )

    async def rejected(self, limit: int) -> Sequence[Rejected]:
        return self.refused[: -limit - 1 : -1]

    async def count(self, counts: Mapping[str, float]) -> None:
        for name, value in counts.items():
            self._counts[name] = self._counts.get(name, 0) + value

    async def counts(self) -> Mapping[str, float]:
        return dict(self._counts)

    def _apply(self, effect: Effect) -> Change:
        result, key = effect.result, effect.result.subscription_id
        change = settle(self.monitors.get(key), effect, lambda time: (key, time) in self._misses)
        if change.monitor is not None:
            self.monitors[key] = change.monitor
        lines = self._checks.setdefault(key, [])
        for time in change.misses:
            self._misses.add((key, time))
            lines.append(Check(key, time, CheckStatus.MISSED_WINDOW, ""))
        at = result.scheduled_check_time_ms
        if change.outcome is Outcome.RETRACTED:
            self._misses.discard((key, at))
            lines[:] = [_taken_back(line, result) for line in lines]
        if change.outcome in {Outcome.APPLIED, Outcome.RETRACTED}:
            lines.append(Check(key, at, result.status, result.guid))
        if change.incident is not None:
            self.incidents.append((key, change.incident, at))
        return change


def changed(monitor: Monitor, change: MonitorChange) -> Monitor:
    """Give a monitor as it is after a change."""
    if change.disable is not None and monitor.detector is not None:
        detector = replace(monitor.detector, enabled=False, disabled_because=change.disable)
        monitor = replace(monitor, detector=detector)
    if change.regions is not None:
        regions = dict(change.regions)
        subscription = replace(monitor.subscription, regions=regions)
        monitor = replace(monitor, subscription=subscription)
    if change.reconciled is not None and change.reconciled == monitor.last_update_ms:
        monitor = replace(monitor, passed=False)
    return monitor


def _taken_back(line: Check, result: CheckResult) -> Check:
    is_its = not line.guid and line.scheduled_check_time_ms == result.scheduled_check_time_ms
    return replace(line, retracted=True) if is_its else line
