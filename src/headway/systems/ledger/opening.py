"""Open the store that the settings name."""

from headway import ConfigurationError
from headway.settings import cure
from headway.systems.ledger.settings import LedgerSettings
from headway.systems.ledger.sqlite_store import SqliteStore
from headway.systems.ledger.store import Store


def open_store(settings: LedgerSettings) -> Store:
    """Choose by the URL; nothing is connected before the first use."""
    path = settings.sqlite_path
    if path is not None:
        return SqliteStore(path)
    try:
        from headway.systems.ledger.postgres_store import PostgresStore  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"LEDGER_DATABASE_URL names PostgreSQL, which needs {missing.name}: " + cure("asyncpg")
        ) from missing
    return PostgresStore(settings.database_url)
