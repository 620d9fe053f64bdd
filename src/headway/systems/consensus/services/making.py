"""Every service of the pipeline is made alike: the same waits, lifecycles and verdicts."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from headway import Lifecycle, Service
from headway.retrying import FloodRule
from headway.systems.consensus.failures import CLASSIFIER
from headway.systems.consensus.lifecycles import LIFECYCLES
from headway.systems.consensus.settings import ConsensusSettings

OF_THE_DATA = FloodRule(at_least=1_000)
"""For services that read what others wrote: a heap of broken files is no bad deploy, and must not
keep what lies behind it waiting for minutes."""

_SHORTEST_LEASE = timedelta(seconds=2)
"""However much waits are scaled: a worker that is busy must be able to renew it."""


def make_service(
    name: str,
    settings: ConsensusSettings,
    *,
    failed_queue: str,
    flood: FloodRule | None = None,
    announces: Sequence[str] = (),
) -> Service:
    """Make a service without handlers."""
    return Service(
        name,
        retry=settings.retry(),
        transient=settings.transient(),
        classifier=CLASSIFIER,
        failed_queue=failed_queue,
        outage=settings.outage(),
        flood=flood or FloodRule(),
        lifecycles=[_scaled(each, settings) for each in LIFECYCLES],
        announces=announces,
    )


def _scaled(lifecycle: Lifecycle, settings: ConsensusSettings) -> Lifecycle:
    """Have what a killed worker held wait no longer than everything else does."""
    if lifecycle.lease is None:
        return lifecycle
    scaled = lifecycle.lease * settings.time_scale
    return replace(lifecycle, lease=max(scaled, _SHORTEST_LEASE))
