"""The whole suite for a finisher."""

from headway.testing.conformance.bodies import BodiesConformance
from headway.testing.conformance.effects import EffectsConformance
from headway.testing.conformance.repetition import RepetitionConformance
from headway.testing.conformance.units import UnitsConformance


class CommitConformance(
    UnitsConformance, RepetitionConformance, EffectsConformance, BodiesConformance
):
    """What `headway.ports.commit` promises."""
