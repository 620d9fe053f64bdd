"""The settings of the ledger, and the database URL without its secrets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from headway import ConfigurationError
from headway.settings import (
    MongoUrl,
    Setting,
    SqliteUrl,
    read,
    read_store_url,
    shown_url,
    whole_number,
)

PREFIX = "LEDGER_"
_DATABASE_URL = f"{PREFIX}DATABASE_URL"


def _status(text: str) -> int:
    if text not in {"500", "503"}:
        raise ValueError("use 500 or 503")
    return int(text)


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(name for each in text.split(",") if (name := each.strip()))


ALLOWED_HOSTS = f"{PREFIX}ALLOWED_HOSTS"
MAX_BULK_EVENTS = f"{PREFIX}MAX_BULK_EVENTS"

SETTINGS = (
    # Taken as it stands: what is wrong with it is said elsewhere, without the password in it.
    Setting("DATABASE_URL", "database_url", str),
    Setting("RETRY_ATTEMPTS", "retry_attempts", whole_number(1, 100)),
    Setting("EXHAUSTED_STATUS", "exhausted_status", _status),
    Setting("MAX_BODY_BYTES", "max_body_bytes", whole_number(1_024, 1_073_741_824)),
    Setting("MAX_BULK_BYTES", "max_bulk_bytes", whole_number(1_024, 1_073_741_824)),
    Setting("MAX_BULK_EVENTS", "max_bulk_events", whole_number(1, 1_000_000)),
    Setting("ALLOWED_HOSTS", "allowed_hosts", _hosts),
    Setting("HOST", "host", str),
    Setting("PORT", "port", whole_number(0, 65_535)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """How one ledger runs."""

    database_url: str = field(default="sqlite:///headway-ledger.db", repr=False)
    retry_attempts: int = 5
    """Attempts in all for each event; 1 turns retry off."""
    exhausted_status: int = 500
    """Answer when an event could not be stored; 503 for clients that retry on nothing else."""
    max_body_bytes: int = 256 * 1024
    max_bulk_bytes: int = 5 * 1024 * 1024
    max_bulk_events: int = 10_000
    allowed_hosts: tuple[str, ...] = ()
    """Names that clients reach it by, besides this machine's own and addresses; `*` is any."""
    host: str = "127.0.0.1"
    port: int = 8080

    def __post_init__(self) -> None:
        _checked(self.database_url)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str]) -> Self:
        """Read LEDGER_*; a value that cannot be used is refused by name."""
        return cls(**read(SETTINGS, settings, prefixes=(PREFIX,)))

    @property
    def sqlite_path(self) -> Path | None:
        """The database file, or None where the database is PostgreSQL."""
        place = read_store_url(_DATABASE_URL, self.database_url)
        return Path(place.path) if isinstance(place, SqliteUrl) else None

    def in_force(self) -> dict[str, str]:
        """Give every setting under its outward name, without secrets."""
        return {
            PREFIX + setting.name: shown_url(value) if setting.field == "database_url" else value
            for setting in SETTINGS
            if (value := _shown(getattr(self, setting.field)))
        }


def _shown(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _checked(url: str) -> None:
    place = read_store_url(_DATABASE_URL, url)
    wrong = ""
    if isinstance(place, MongoUrl):
        wrong = "the ledger does not use MongoDB"
    elif isinstance(place, SqliteUrl) and "?" in url:
        wrong = "the ledger has no options for a file; in the name of a file a ? is written as %3F"
    if wrong:
        raise ConfigurationError(
            f"{_DATABASE_URL}={shown_url(url)!r} is not accepted: {wrong}; use sqlite:///FILE or "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        )
