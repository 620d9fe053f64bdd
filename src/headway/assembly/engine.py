"""Open an engine by its URL."""

from headway.adapters.sqlite.engine import sqlite_engine
from headway.adapters.sqlite.store import sqlite_store
from headway.assembly.retrying import CHANCE, CLOCK
from headway.assembly.settings import EngineSettings, engine_settings
from headway.core.engine_url import AmqpUrl
from headway.core.errors import ConfigurationError
from headway.core.secrets import hidden
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.runtime.joined_engine import BusParts, with_store, without_store


def open_engine(
    url: str | None = None,
    *,
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> Engine:
    """Open an engine; without a URL, the one that HEADWAY_BUS names. It has to be closed."""
    settings = engine_settings(url)
    bus = settings.bus
    if not isinstance(bus, AmqpUrl):
        return sqlite_engine(bus.path, clock, chance, synchronous=bus.synchronous)
    parts = _broker(settings, str(bus), clock, chance)
    if settings.store is None:
        return without_store(parts)
    file = settings.store
    return with_store(parts, sqlite_store(file.path, clock, synchronous=file.synchronous))


def _broker(settings: EngineSettings, url: str, clock: Clock, chance: Chance) -> BusParts:
    try:
        from headway.adapters.rabbitmq.engine import rabbitmq_parts  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as missing:
        if missing.name != "pika":
            raise
        raise ConfigurationError(
            f"{settings.name}={hidden(settings.url)!r} needs pika: pip install 'headway[rabbitmq]'"
        ) from missing
    return rabbitmq_parts(url, clock, chance, exchange=settings.exchange)
