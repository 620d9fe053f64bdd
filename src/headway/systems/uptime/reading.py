"""Subscriptions and results from files of JSON lines, and the consumer in numbers."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from headway import ConfigurationError
from headway.engines import open_sequences
from headway.systems.uptime.metrics import rates
from headway.systems.uptime.monitors import Detector, Subscription
from headway.systems.uptime.opening import FAMILY, open_store
from headway.systems.uptime.rollout import BACKLOG_RETRY
from headway.systems.uptime.settings import UptimeSettings


class Watched(msgspec.Struct, frozen=True):
    """One line of a file of subscriptions."""

    subscription: Subscription
    detector: Detector | None = None


def read_subscriptions(lines: Iterable[bytes]) -> Iterator[Watched]:
    """Read subscriptions with their detectors; a line that is none is refused by its number."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield msgspec.json.decode(line, type=Watched)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigurationError(
                f"line {number} is no subscription ({error}): use "
                '{"subscription": {"subscription_id": "...", "interval_seconds": 60}, '
                '"detector": {"detector_id": "...", "organization": "..."}}'
            ) from None


async def save_subscriptions(settings: UptimeSettings, watched: list[Watched]) -> None:
    store = open_store(settings)
    try:
        await store.prepare()
        detectors = {
            each.subscription.subscription_id: each.detector
            for each in watched
            if each.detector is not None
        }
        await store.save([each.subscription for each in watched], detectors)
    finally:
        await store.close()


async def status_of(settings: UptimeSettings) -> dict[str, Any]:
    """Give the consumer in numbers: its store, what is held, counters and rates."""
    store = open_store(settings)
    sequences = open_sequences(settings.sequences_url, family=FAMILY, settings=settings.order())
    try:
        await store.prepare()
        counts = dict(await store.counts())
        waiting, _ = await sequences.waiting(1)
        rollout = settings.features().backlog_retry
        return {
            **msgspec.structs.asdict(await store.totals()),
            "waiting_subscriptions": waiting,
            "feature": BACKLOG_RETRY,
            "organizations": sorted(rollout.organizations),
            "percentage": rollout.percentage,
            "rates": rates(counts),
            "counters": dict(sorted(counts.items())),
        }
    finally:
        await sequences.close()
        await store.close()
