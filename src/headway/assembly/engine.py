"""Open an engine by its URL.

Each adapter is imported when it is asked for: a process that has one engine has no memory for all.
"""

from headway.adapters.system.chance import CHANCE
from headway.adapters.system.clock import CLOCK
from headway.assembly.settings import EngineSettings, engine_settings
from headway.core.engine_url import AmqpUrl, MongoUrl, PostgresUrl, SqliteUrl
from headway.core.errors import ConfigurationError
from headway.core.extras import cure
from headway.core.secrets import shown_url
from headway.ports.chance import Chance
from headway.ports.clock import Clock
from headway.ports.engine import Engine
from headway.runtime.joined_engine import BusParts, StoreParts, with_store, without_store


def open_engine(
    url: str | None = None,
    *,
    store: bool = True,
    patient: bool = True,
    for_worker: bool = False,
    clock: Clock = CLOCK,
    chance: Chance = CHANCE,
) -> Engine:
    """Open an engine; without a URL, the one that HEADWAY_BUS names. It has to be closed.

    `store=False` leaves out what is beside a broker: who only publishes needs none. `patient=False`
    does not wait for a broker that has no memory or disk space left: whoever publishes is told so.
    `for_worker` waits for a broker that cannot be reached or refuses the login; others are told.
    """
    settings = engine_settings(url)
    bus = settings.bus
    if not isinstance(bus, AmqpUrl):
        from headway.adapters.sqlite.engine import sqlite_engine  # noqa: PLC0415 (see above)

        return sqlite_engine(bus.path, clock, chance, synchronous=bus.synchronous)
    parts = _broker(settings, str(bus), clock, chance, patient=patient, for_worker=for_worker)
    beside = _store(settings, clock) if store else None
    return without_store(parts) if beside is None else with_store(parts, beside)


def _broker(
    settings: EngineSettings,
    url: str,
    clock: Clock,
    chance: Chance,
    *,
    patient: bool,
    for_worker: bool,
) -> BusParts:
    try:
        from headway.adapters.rabbitmq.engine import rabbitmq_parts  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as missing:
        if missing.name != "pika":
            raise
        raise ConfigurationError(
            f"{settings.name}={shown_url(settings.url)!r} needs pika: {cure('rabbitmq')}"
        ) from missing
    return rabbitmq_parts(
        url,
        clock,
        chance,
        exchange=settings.exchange,
        has_store=settings.store is not None,
        patient=patient,
        for_worker=for_worker,
    )


def _store(settings: EngineSettings, clock: Clock) -> StoreParts | None:
    match settings.store:
        case SqliteUrl(path, synchronous):
            from headway.adapters.sqlite.store import sqlite_store  # noqa: PLC0415 (see above)

            return sqlite_store(path, clock, synchronous=synchronous)
        case MongoUrl():
            return _mongodb(settings, clock)
        case PostgresUrl():
            return _postgres(settings, clock)
        case None:
            return None


def _mongodb(settings: EngineSettings, clock: Clock) -> StoreParts:
    try:
        from headway.adapters.mongodb.store import mongodb_store  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as missing:
        raise _needs(settings, missing, "pymongo", "mongodb") from missing
    return mongodb_store(settings.store_url, clock, name=settings.store_name)


def _postgres(settings: EngineSettings, clock: Clock) -> StoreParts:
    try:
        from headway.adapters.postgres.store import postgres_store  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as missing:
        raise _needs(settings, missing, "asyncpg", "asyncpg") from missing
    return postgres_store(settings.store_url, clock)


def _needs(
    settings: EngineSettings, missing: ModuleNotFoundError, driver: str, extra: str
) -> Exception:
    """Name the extra that brings a driver; anything else that is missing is our own fault."""
    if missing.name is None or missing.name.partition(".")[0] not in {driver, *_BESIDE}:
        return missing
    url = shown_url(settings.store_url)
    return ConfigurationError(f"{settings.store_name}={url!r} needs {driver}: {cure(extra)}")


_BESIDE = ("bson",)
"""Modules that come with a driver, under names of their own."""
