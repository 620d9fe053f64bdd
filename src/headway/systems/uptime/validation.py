"""What is checked of a result before anybody asks for its place in the order.

Only what can be processed is ever held: not results of a monitor that is gone or off, nor those of
a region that is only tried out.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from headway.systems.uptime.monitors import Monitor, RegionMode
from headway.systems.uptime.results import CheckResult, CheckStatus
from headway.systems.uptime.rollout import Features

AHEAD_AT_MOST = timedelta(hours=1)
"""How far the clock of a checker may be ahead of ours."""
_SECONDS_OF_AN_HOUR = 3600


class Drop(StrEnum):
    """Why a result is not processed, in the order in which it is asked."""

    MALFORMED = "malformed"
    SUBSCRIPTION_NOT_FOUND = "subscription_not_found"
    DISALLOWED_BY_ROBOTS = "disallowed_by_robots"
    SHADOW_REGION = "shadow_region"
    DETECTOR_NOT_FOUND = "detector_not_found"
    DETECTOR_DISABLED = "detector_disabled"
    FEATURE_DISABLED = "feature_disabled"


def latest_ms(now: datetime) -> int:
    """Give the latest time for which a check can have been scheduled."""
    return int((now + AHEAD_AT_MOST).timestamp() * 1000)


def refused_by_time(result: CheckResult, latest: int) -> str | None:
    """Say what is wrong with a result of a check that was not made yet.

    If it were processed, all that come until then would be taken for duplicates.
    """
    if result.scheduled_check_time_ms <= latest:
        return None
    return (
        f"scheduled_check_time_ms={result.scheduled_check_time_ms} is not accepted: use the time "
        f"for which the check was scheduled, {latest} at most ({AHEAD_AT_MOST} from now), and look "
        "at the clock of the checker"
    )


def refused_by_subscription(result: CheckResult, monitor: Monitor | None) -> Drop | None:
    """Ask what comes before the check of regions."""
    if monitor is None:
        return Drop.SUBSCRIPTION_NOT_FOUND
    if result.status is CheckStatus.DISALLOWED_BY_ROBOTS:
        return Drop.DISALLOWED_BY_ROBOTS
    if monitor.subscription.regions.get(result.region) is RegionMode.SHADOW:
        return Drop.SHADOW_REGION
    return None


def refused_by_detector(monitor: Monitor, features: Features) -> Drop | None:
    """Ask what comes after it."""
    if monitor.detector is None:
        return Drop.DETECTOR_NOT_FOUND
    if not monitor.detector.enabled:
        return Drop.DETECTOR_DISABLED
    if not features.uptime.includes(monitor.detector.organization):
        return Drop.FEATURE_DISABLED
    return None


def regions_to_set(
    monitor: Monitor, configured: Mapping[str, RegionMode], draw: float
) -> Mapping[str, RegionMode] | None:
    """Say which regions a subscription should have instead of its own, about once in an hour.

    None: they are right, or it is not the time to look.
    """
    often = monitor.subscription.interval_seconds / _SECONDS_OF_AN_HOUR
    if not configured or draw >= often or monitor.subscription.regions == dict(configured):
        return None
    return configured


def metric_tags(result: CheckResult) -> dict[str, str]:
    """Give what results are counted by; no ids, and no words of the site."""
    return {"status": result.status.value, "region": result.region}
