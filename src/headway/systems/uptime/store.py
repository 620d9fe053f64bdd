"""What the consumer needs of its own store. Nothing of an effect is kept unless all of it is."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from headway.systems.uptime.effects import Change, Effect
from headway.systems.uptime.monitors import Detector, Monitor, RegionMode, Subscription


class Check(msgspec.Struct, frozen=True):
    """One line of the record of checks, in the order in which they were written."""

    subscription_id: str
    scheduled_check_time_ms: int
    status: str
    guid: str
    retracted: bool = False
    """A miss that was taken back: its result came late."""


class Rejected(msgspec.Struct, frozen=True):
    """Bytes that came and were no result."""

    raw: bytes
    reason: str
    at: datetime | None = None
    """When it came. None: nobody wrote that down."""


class Totals(msgspec.Struct, frozen=True):
    """The store in numbers."""

    subscriptions: int
    applied: int
    """By the counters of the monitors."""
    results: int
    """By the record of checks; those that came late included."""
    misses: int
    """That stand."""
    retracted: int
    incidents: int
    rejected: int


class UptimeStore(Protocol):
    """Subscriptions, detectors, and what results did to them."""

    async def prepare(self) -> None:
        """Make the tables unless they are there; several processes may do so at once."""
        ...

    async def load(self, subscription_ids: Sequence[str]) -> Mapping[str, Monitor]:
        """Give monitors as they are now; of an unknown one nothing."""
        ...

    async def apply(self, effects: Sequence[Effect]) -> Sequence[Change]:
        """Settle effects in this order, in one transaction, and say what was written."""
        ...

    async def save(
        self, subscriptions: Sequence[Subscription], detectors: Mapping[str, Detector]
    ) -> None:
        """Write subscriptions and their detectors; how far they are applied stays as it is."""
        ...

    async def change(self, subscription_id: str, change: "MonitorChange") -> None:
        """Change one monitor; of an unknown one nothing."""
        ...

    async def reject(self, raw: bytes, reason: str, at: datetime) -> None:
        """Keep bytes that are no result, for a person to look at."""
        ...

    async def count(self, counts: Mapping[str, float]) -> None:
        """Add to counters that all processes share."""
        ...

    async def close(self) -> None: ...


class MonitorChange(msgspec.Struct, frozen=True):
    """What is changed of a monitor; what is None stays."""

    disable: str | None = None
    """Why its detector is not to be followed any more."""
    regions: Mapping[str, RegionMode] | None = None
    delete: bool = False
    reconciled: int | None = None
    """What went on without its order is put right, if this is still the last that was applied."""


class UptimeRecords(UptimeStore, Protocol):
    """A store with what people and proofs read."""

    async def checks(self, subscription_id: str) -> Sequence[Check]: ...

    async def totals(self) -> Totals: ...

    async def rejected(self, limit: int) -> Sequence[Rejected]:
        """Give the last bytes that were no result, the latest first."""
        ...

    async def counts(self) -> Mapping[str, float]:
        """Give what all processes have counted, by the names of `metrics.Tally`."""
        ...
