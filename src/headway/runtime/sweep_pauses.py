"""Leave collections alone whose events nobody would handle now, but for a probe now and then.

One probe is one document, sent as any other. If it gets through, whoever is down is up again, the
note is gone, and the next run sends the rest. If not, the pause until the next probe doubles.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from headway.runtime.down_notes import is_down
from headway.runtime.sweep_targets import Target

_LONGEST = 8
"""Intervals."""


@dataclass(frozen=True, slots=True)
class _Pause:
    lasts: timedelta
    until: datetime


class Pauses:
    """Remembers, in one process, when a collection is probed next; pauses double."""

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval
        self._pauses: dict[str, _Pause] = {}

    def probes(self, target: Target, down: Collection[str], now: datetime) -> int | None:
        """Say how many documents may be sent now, one or none; None: as many as there are."""
        subscription = target.subscription
        if not is_down(down, subscription.service, subscription.event_type):
            self._pauses.pop(target.collection, None)
            return None
        pause = self._pauses.get(target.collection)
        return int(pause is None or now >= pause.until)

    def probed(self, target: Target, now: datetime) -> None:
        """Take down that a probe was sent."""
        last = self._pauses.get(target.collection)
        lasts = self._interval
        if last is not None:
            lasts = min(last.lasts * 2, self._interval * _LONGEST)
        self._pauses[target.collection] = _Pause(lasts, now + lasts)

    def left(self, target: Target, now: datetime) -> timedelta:
        """Say how long it is until the next probe: if there was nothing to send, one interval."""
        pause = self._pauses.get(target.collection)
        if pause is None or now >= pause.until:
            return self._interval
        return pause.until - now
