"""The whole suite for a bus."""

from headway.testing.conformance.publishing import PublishingConformance
from headway.testing.conformance.settling import SettlingConformance
from headway.testing.conformance.takings import TakingsConformance


class BusConformance(PublishingConformance, SettlingConformance, TakingsConformance):
    """What `headway.ports.bus` promises."""
