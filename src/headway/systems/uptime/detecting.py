"""What results in a row say about a monitor: the modes of a detector, and incidents."""

from enum import StrEnum

from msgspec.structs import replace

from headway.systems.uptime.monitors import Detector, DetectorMode, DetectorStatus
from headway.systems.uptime.results import CheckResult, CheckStatus

FAILURES_FOR_AN_INCIDENT = 3
SUCCESSES_TO_BE_ACTIVE = 10
FAILURES_TO_BE_REMOVED = 3


class Incident(StrEnum):
    """What is told to people."""

    OPENED = "opened"
    RESOLVED = "resolved"
    ACTIVATED = "activated"
    """A monitor that was found by itself has proved itself."""
    REMOVED = "removed"
    """One that was found by itself has not."""


def follow(detector: Detector, result: CheckResult) -> tuple[Detector, Incident | None]:
    """Say how a detector stands after a result, and whether somebody is told.

    Misses never get here: they are recorded, and say nothing about the address.
    """
    if result.status is not CheckStatus.SUCCESS and result.status is not CheckStatus.FAILURE:
        return detector, None
    if result.status is CheckStatus.SUCCESS:
        after = replace(detector, failures=0, successes=detector.successes + 1)
    else:
        after = replace(detector, failures=detector.failures + 1, successes=0)
    if detector.mode is DetectorMode.ONBOARDING:
        return _onboarding(after)
    return _active(after)


def _onboarding(detector: Detector) -> tuple[Detector, Incident | None]:
    if detector.failures >= FAILURES_TO_BE_REMOVED:
        words = "failed while onboarding"
        return replace(detector, enabled=False, disabled_because=words), Incident.REMOVED
    if detector.successes >= SUCCESSES_TO_BE_ACTIVE:
        return replace(detector, mode=DetectorMode.ACTIVE), Incident.ACTIVATED
    return detector, None


def _active(detector: Detector) -> tuple[Detector, Incident | None]:
    if detector.status is DetectorStatus.FAILED and detector.successes:
        return replace(detector, status=DetectorStatus.OK), Incident.RESOLVED
    if detector.status is DetectorStatus.OK and detector.failures >= FAILURES_FOR_AN_INCIDENT:
        return replace(detector, status=DetectorStatus.FAILED), Incident.OPENED
    return detector, None
