"""Open sequences by their URL."""

from typing import Protocol

from headway.adapters.sqlite.sequences import sqlite_sequences
from headway.adapters.system.clock import CLOCK
from headway.assembly.settings import SequencesSettings, sequences_settings
from headway.core.engine_url import RedisUrl, SqliteUrl
from headway.core.errors import ConfigurationError
from headway.core.extras import cure
from headway.core.secrets import shown_url
from headway.core.sequence_settings import DEFAULT_NAME, SequenceSettings
from headway.ports.clock import Clock
from headway.ports.sequences import SequenceDesk, Sequences


class OpenSequences(Sequences, SequenceDesk, Protocol):
    """Sequences as workers and as operators see them."""


def open_sequences(
    url: str | None = None,
    *,
    family: str = DEFAULT_NAME,
    settings: SequenceSettings | None = None,
    clock: Clock | None = None,
) -> OpenSequences:
    """Open sequences; without a URL, those that HEADWAY_SEQUENCES names. They have to be closed.

    Families that share a place know nothing of one another. Without a clock the time is that of
    the machine where the file is; Redis has its own.
    """
    meant = sequences_settings(url)
    place = meant.place
    if isinstance(place, SqliteUrl):
        return sqlite_sequences(
            place.path, clock or CLOCK, settings, family=family, synchronous=place.synchronous
        )
    return _redis(meant, place, family, settings, clock)


def _redis(
    meant: SequencesSettings,
    place: RedisUrl,
    family: str,
    settings: SequenceSettings | None,
    clock: Clock | None,
) -> OpenSequences:
    try:
        from headway.adapters.redis.clustered import clustered_sequences  # noqa: PLC0415 (an extra)
        from headway.adapters.redis.sequences import redis_sequences  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in {"redis", "hiredis"}:
            raise
        raise ConfigurationError(
            f"{meant.name}={shown_url(meant.url)!r} needs redis: {cure('redis')}"
        ) from missing
    opened = clustered_sequences if place.cluster else redis_sequences
    return opened(place.url, settings, prefix=family, clock=clock)
