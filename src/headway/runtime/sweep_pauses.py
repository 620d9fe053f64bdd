"""Leave collections alone whose events depend on something that is down."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from headway.runtime.down_notes import EVERY_TYPE, down_note
from headway.runtime.sweep_targets import Target

_LONGEST = 8
"""Intervals."""


@dataclass(frozen=True, slots=True)
class _Pause:
    lasts: timedelta
    until: datetime


class Pauses:
    """Remembers, in one process, what is left alone and until when; pauses double."""

    def __init__(self, interval: timedelta) -> None:
        self._interval = interval
        self._pauses: dict[str, _Pause] = {}

    def left_alone(self, target: Target, down: Collection[str], now: datetime) -> timedelta | None:
        """Say for how long a collection is left alone, from now; None: it can be swept."""
        name = target.collection
        pause = self._pauses.get(name)
        if pause is not None and now < pause.until:
            return pause.until - now
        subscription = target.subscription
        notes = {
            down_note(subscription.service, event_type)
            for event_type in (subscription.event_type, EVERY_TYPE)
        }
        if notes.isdisjoint(down):
            self._pauses.pop(name, None)
            return None
        lasts = self._interval
        if pause is not None:
            lasts = min(pause.lasts * 2, self._interval * _LONGEST)
        self._pauses[name] = _Pause(lasts, now + lasts)
        return lasts
