"""The front door of the consumer: validate, keep the order, process.

`handle_results` is for what comes from the source. What comes out of the backlog goes to
`_process_result_internal` directly: it was at the door once, and would be queued again.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from headway import ConfigurationError
from headway.clock import Chance, Clock
from headway.errors import SequencesAwayError, is_unavailable
from headway.order import (
    BatchResequencer,
    Disposition,
    LookScheduler,
    Progress,
    Result,
    SequenceEngine,
    SequenceWatcher,
    Turn,
)
from headway.systems.uptime import metrics
from headway.systems.uptime.decoding import Decoding
from headway.systems.uptime.effects import Change, Effect, Missing, Outcome
from headway.systems.uptime.metrics import BacklogWatcher, Counting
from headway.systems.uptime.monitors import Monitor, RegionMode
from headway.systems.uptime.results import CheckResult, decode
from headway.systems.uptime.rollout import Features
from headway.systems.uptime.saying import UnknownSubscriptions
from headway.systems.uptime.store import MonitorChange, UptimeStore
from headway.systems.uptime.validation import (
    Drop,
    metric_tags,
    refused_by_detector,
    refused_by_subscription,
    regions_to_set,
)

Handled = Disposition | Drop
"""What became of a result. But for Disposition.LEFT, the source need not keep it any longer."""
_HELD_AT_ONCE = 1000


class ResultProcessor:
    """One consumer, for one event loop."""

    def __init__(
        self,
        store: UptimeStore,
        sequences: SequenceEngine,
        *,
        clock: Clock,
        chance: Chance,
        counts: Counting,
        features: Features,
        regions: Mapping[str, RegionMode] | None = None,
        scheduler: LookScheduler | None = None,
        watcher: SequenceWatcher | None = None,
        progress: Progress | None = None,
        patience: timedelta = timedelta(seconds=10),
        renewing: bool = True,
    ) -> None:
        self.store = store
        self.sequences = sequences
        self._decoding = Decoding(store, counts, clock)
        self._unknown = UnknownSubscriptions(clock)
        self._chance = chance
        self._counts = counts
        self._features = features
        self._regions = regions or {}
        self.backlog = BatchResequencer(
            sequences,
            self._released,
            clock=clock,
            chance=chance,
            watchers=[BacklogWatcher(counts), *([watcher] if watcher else [])],
            scheduler=scheduler,
            otherwise=self._passed,
            wanted=self._wanted,
            progress=progress,
            patience=patience,
            renewing=renewing,
        )

    async def handle_result(self, raw: bytes, caught_up: datetime | None = None) -> Handled:
        """Take one result from the source."""
        return (await self.handle_results([raw], caught_up))[0]

    async def handle_results(
        self, raws: Sequence[bytes], caught_up: datetime | None = None
    ) -> list[Handled]:
        """Take results from the source, in the order in which it gave them.

        `caught_up` is until when all that reached the source was taken; None: until now.
        """
        if caught_up is not None and caught_up.tzinfo is None:
            raise ConfigurationError(f"caught_up={caught_up!r} is not accepted: name its time zone")
        handled: list[Handled] = [Drop.MALFORMED] * len(raws)
        results = await self._decoding.from_source(raws)
        ids = [result.subscription_id for result in results.values()]
        monitors = await self.store.load(ids) if ids else {}
        self._unknown.tell([key for key in ids if key not in monitors])
        queued: dict[int, Result] = {}
        direct: dict[int, Effect] = {}
        for at, result in results.items():
            monitor = monitors.get(result.subscription_id)
            drop = await self._refused(result, monitor)
            if drop is not None or monitor is None:
                handled[at] = self._dropped(drop or Drop.SUBSCRIPTION_NOT_FOUND)
            elif self.should_queue_for_retry(result, monitor):
                queued[at] = _offer_of(result, monitor, raws[at], caught_up)
            else:
                passed = not self._is_ordered(monitor)
                direct[at] = Effect(result, detect=True, passed=passed)
        for at, change in zip(
            direct, await self._process_result_internal(list(direct.values())), strict=True
        ):
            handled[at] = _FATES[change.outcome]
        await self._reconcile(monitors, queued.values())
        fates = await self.queue_result_for_retry(list(queued.values()))
        handled_there = dict(zip(queued, fates, strict=True))
        return [handled_there.get(at, fate) for at, fate in enumerate(handled)]

    def should_queue_for_retry(self, result: CheckResult, monitor: Monitor) -> bool:
        """Say whether a result has to ask for its place in the order.

        Not where the feature is off, nor for what was applied already: that is a duplicate, or
        takes a miss back. Whether there is a gap or a backlog is not asked here: somebody else
        could change it before the result is queued. The queue answers both in one step.
        """
        if not self._is_ordered(monitor):
            return False
        last = monitor.last_update_ms
        return last is None or result.scheduled_check_time_ms > last

    def _is_ordered(self, monitor: Monitor) -> bool:
        """Say whether the feature is on for a monitor. Another worker may be told otherwise."""
        if monitor.detector is None:
            return False
        return self._features.backlog_retry.includes(monitor.detector.organization)

    async def queue_result_for_retry(self, results: Sequence[Result]) -> list[Disposition]:
        """Offer results: whose turn it is are processed, and all that waited for them."""
        if not results:
            return []
        fates = await self.backlog.offer(results)
        known = [
            each for each, fate in zip(results, fates, strict=True) if fate is Disposition.DUPLICATE
        ]
        # One that the queue knows may have been taken for missed by our own store meanwhile.
        await self._process_result_internal([Effect(decode(each.payload)) for each in known])
        return fates

    async def process_uptime_backlog(self, key: str) -> timedelta | None:
        """Look at one backlog, as a scheduled task does; say when to look again, if at all.

        A task that comes between two looks of the schedule belongs to a gap that is closed, and
        ends here: so chains of tasks do not multiply. If it is only late, the index finds the key.
        """
        return await self.backlog.look(key, in_time=True)

    async def close(self) -> None:
        await self.backlog.close()
        await self.store.close()

    async def _process_result_internal(self, effects: Sequence[Effect]) -> Sequence[Change]:
        """Process results whose turn has come. Nothing here looks at the queue.

        All in one transaction of the store: the check for duplicates, misses that are made up or
        taken back, the mode of the detector, the record of checks, and last_update_ms.
        """
        if not effects:
            return []
        changes = await self.store.apply(effects)
        for effect, change in zip(effects, changes, strict=True):
            self._count(effect.result, change)
        return changes

    async def _refused(self, result: CheckResult, monitor: Monitor | None) -> Drop | None:
        drop = refused_by_subscription(result, monitor)
        if monitor is None or drop is not None:
            if drop is Drop.DISALLOWED_BY_ROBOTS:
                change = MonitorChange(disable="the site's robots.txt disallows checks")
                await self.store.change(result.subscription_id, change)
            return drop
        regions = regions_to_set(monitor, self._regions, self._chance.draw())
        if regions is not None:
            await self.store.change(monitor.key, MonitorChange(regions=regions))
        return refused_by_detector(monitor, self._features)

    async def _released(self, works: Sequence[Turn]) -> Sequence[BaseException | None]:
        """Apply results whose turn has come; what cannot be read is put aside."""
        effects: dict[int, Effect] = {}
        for at, work in enumerate(works):
            result = await self._decoding.from_backlog(work.payload)
            if result is not None:
                effects[at] = Effect(result, _missing_before(work))
        ends = dict(zip(effects, await self._applied(list(effects.values())), strict=True))
        return [ends.get(at) for at in range(len(works))]

    async def _applied(self, effects: Sequence[Effect]) -> list[BaseException | None]:
        """Apply results, and say what was raised. One that cannot be keeps back no other."""
        try:
            await self._process_result_internal(effects)
        except Exception as error:  # noqa: BLE001 (whatever a store raises: it is tried again)
            if len(effects) == 1 or is_unavailable(error):
                return [error] * len(effects)
        else:
            return [None] * len(effects)
        return [end for effect in effects for end in await self._applied([effect])]

    async def _passed(self, results: Sequence[Result]) -> None:
        """Process without the order, because the queue is away; this is put right afterwards."""
        effects = [Effect(decode(each.payload), detect=True, passed=True) for each in results]
        await self._process_result_internal(effects)

    async def _reconcile(self, monitors: Mapping[str, Monitor], queued: Iterable[Result]) -> None:
        """Take back misses for what was held all the time while others went on without the order.

        The queue was away, or the feature was off for a while or for another worker. The next
        offer would drop what is held: by the marker of our store it is applied.
        """
        for key in {result.key for result in queued}:
            monitor = monitors[key]
            if not monitor.passed:
                continue
            try:
                held = await self.backlog.ask(partial(self.sequences.held, key, _HELD_AT_ONCE))
            except SequencesAwayError:
                continue  # the offer will be told the same
            last = monitor.last_update_ms
            late = [
                await self._decoding.from_backlog(each.payload)
                for each in held
                if last is not None and each.position <= last
            ]
            await self._process_result_internal([Effect(each) for each in late if each is not None])
            await self.store.change(key, MonitorChange(reconciled=last))

    async def _wanted(self, keys: Sequence[str]) -> Sequence[str]:
        """Forget the backlogs of monitors that are gone, and give the other keys."""
        monitors = await self.store.load(keys)
        wanted = []
        for key in keys:
            monitor = monitors.get(key)
            if monitor is not None and monitor.detector is not None:
                wanted.append(key)
                continue
            self._counts.add(metrics.REMOVED, await self.sequences.forget(key))
        return wanted

    def _dropped(self, drop: Drop) -> Drop:
        self._counts.add(metrics.DROPPED, 1, {"reason": drop.value})
        return drop

    def _count(self, result: CheckResult, change: Change) -> None:
        match change.outcome:
            case Outcome.APPLIED:
                self._counts.add(metrics.PROCESSED, 1, metric_tags(result))
            case Outcome.RETRACTED:
                self._counts.add(metrics.PROCESSED, 1, metric_tags(result))
                self._counts.add(metrics.RETRACTED)
            case Outcome.DUPLICATE:
                self._counts.add(metrics.DUPLICATES)
            case Outcome.GONE:
                self._dropped(Drop.DETECTOR_NOT_FOUND)
        if change.misses:
            self._counts.observe(metrics.MISSING, len(change.misses))


_FATES: dict[Outcome, Handled] = {
    Outcome.APPLIED: Disposition.APPLIED,
    Outcome.RETRACTED: Disposition.APPLIED,
    Outcome.DUPLICATE: Disposition.DUPLICATE,
    Outcome.GONE: Drop.DETECTOR_NOT_FOUND,
}


def _offer_of(
    result: CheckResult, monitor: Monitor, raw: bytes, caught_up: datetime | None
) -> Result:
    return Result(
        monitor.key,
        result.scheduled_check_time_ms,
        raw,
        step=monitor.subscription.interval_ms,
        begins=monitor.subscription.interval_since_ms,
        applied=monitor.applied_until_ms,
        caught_up=caught_up,
    )


def _missing_before(work: Turn) -> Missing | None:
    gap = work.gap
    return Missing(gap.first, gap.last, gap.step) if gap is not None and gap.fill else None
