"""All that an engine of sequences promises."""

from headway.testing.conformance.flights import FlightsConformance
from headway.testing.conformance.gaps import GapsConformance
from headway.testing.conformance.handed import HandedConformance
from headway.testing.conformance.late import LateConformance
from headway.testing.conformance.order import OrderConformance


class SequencesConformance(
    OrderConformance, FlightsConformance, GapsConformance, LateConformance, HandedConformance
):
    """Results of each key in their order."""
