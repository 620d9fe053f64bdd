"""The whole suite for places."""

from headway.testing.conformance.counting import CountingConformance
from headway.testing.conformance.whereabouts import WhereaboutsConformance


class PlacesConformance(CountingConformance, WhereaboutsConformance):
    """What `headway.ports.places` promises."""
