"""The metrics page, for one process or for all that share a folder of counters."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from headway.settings import SHARED_COUNTERS, environment


def exposition(registry: CollectorRegistry) -> bytes:
    if not environment().get(SHARED_COUNTERS):
        return generate_latest(registry)
    everybody = CollectorRegistry()
    MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
    return generate_latest(everybody)
