"""Open an engine by its URL."""

from headway.adapters.sqlite.engine import sqlite_engine
from headway.assembly.retrying import CHANCE, CLOCK
from headway.assembly.settings import bus_url
from headway.core.engine_url import read_engine_url
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine


def open_engine(
    url: str | None = None,
    *,
    name: str = "HEADWAY_BUS",
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> Engine:
    """Open an engine; without a URL, the one that HEADWAY_BUS names. Its bus has to be closed."""
    found = read_engine_url("--bus" if url else name, url or bus_url())
    return sqlite_engine(found.path, clock, chance, synchronous=found.synchronous)
