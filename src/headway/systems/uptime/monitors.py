"""What is checked, and who is told: subscriptions and their detectors."""

from enum import StrEnum

import msgspec

from headway import ConfigurationError

LONGEST_ID = 200
LONGEST_INTERVAL_SECONDS = 7 * 86_400
_HIGHEST_MS = 2**52


class RegionMode(StrEnum):
    """Whether results of a region count."""

    ACTIVE = "active"
    SHADOW = "shadow"
    """A new region is tried out: its results are dropped."""


class Subscription(msgspec.Struct, frozen=True):
    """One address that checkers check once in every interval."""

    subscription_id: str
    url: str = ""
    interval_seconds: int = 60
    interval_since_ms: int = 0
    """Since when this interval holds, or the monitor is enabled: nothing before is missed."""
    regions: dict[str, RegionMode] = msgspec.field(default_factory=dict)
    """Empty: results of every region count."""

    def __post_init__(self) -> None:
        if not 0 < len(self.subscription_id) <= LONGEST_ID:
            raise ConfigurationError(
                f"subscription_id={self.subscription_id[:LONGEST_ID]!r} is not accepted: use 1 to "
                f"{LONGEST_ID} characters"
            )
        if not 0 < self.interval_seconds <= LONGEST_INTERVAL_SECONDS:
            raise self._refused(
                "interval_seconds", f"whole seconds from 1 to {LONGEST_INTERVAL_SECONDS}"
            )
        if not 0 <= self.interval_since_ms <= _HIGHEST_MS:
            raise self._refused("interval_since_ms", "milliseconds since 1970, or 0 for unknown")

    def _refused(self, name: str, cure: str) -> ConfigurationError:
        return ConfigurationError(
            f"{name}={getattr(self, name)} of subscription {self.subscription_id!r} is not "
            f"accepted: use {cure}"
        )

    @property
    def interval_ms(self) -> int:
        return self.interval_seconds * 1000


class DetectorMode(StrEnum):
    """How sure we are that somebody wants to know."""

    ONBOARDING = "onboarding"
    """It was found by itself, and has to prove that the address is of use."""
    ACTIVE = "active"


class DetectorStatus(StrEnum):
    """What the results of late say."""

    OK = "ok"
    FAILED = "failed"


class Detector(msgspec.Struct, frozen=True):
    """Turns results of a subscription into incidents for an organization."""

    detector_id: str
    organization: str
    enabled: bool = True
    mode: DetectorMode = DetectorMode.ACTIVE
    status: DetectorStatus = DetectorStatus.OK
    failures: int = 0
    """Failed checks in a row."""
    successes: int = 0
    """Checks that went well in a row."""
    disabled_because: str = ""


class Monitor(msgspec.Struct, frozen=True):
    """A subscription with its detector, and how far its results are applied."""

    subscription: Subscription
    detector: Detector | None = None
    last_update_ms: int | None = None
    """The last scheduled time that was applied. It only moves forward. None: no result yet."""
    applied: int = 0
    """How many results were applied: added up, so that one applied twice would show."""
    passed: bool = False
    """Results went on without their order, while the engine was away or the feature was off."""

    @property
    def applied_until_ms(self) -> int | None:
        """Until when nothing is missing: the last result, or one interval before the first.

        None: neither is known, so the first result that comes is taken for the first.
        """
        if self.last_update_ms is not None:
            return self.last_update_ms
        began = self.subscription.interval_since_ms
        return began - self.subscription.interval_ms if began else None

    @property
    def key(self) -> str:
        return self.subscription.subscription_id
