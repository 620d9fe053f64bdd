"""The whole suite for a bus."""

from headway.testing.conformance.publishing import PublishingConformance
from headway.testing.conformance.settling import SettlingConformance
from headway.testing.conformance.takings import TakingsConformance
from headway.testing.conformance.versions import VersionsConformance


class BusConformance(
    PublishingConformance, SettlingConformance, TakingsConformance, VersionsConformance
):
    """What `headway.ports.bus` promises."""
