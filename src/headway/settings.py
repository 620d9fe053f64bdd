"""Settings: read, check and show them as Headway does."""

from headway.assembly.settings import SHARED_COUNTERS, environment, log_level
from headway.core.engine_url import (
    MongoUrl,
    PostgresUrl,
    SqliteUrl,
    read_engine_url,
    read_sequences_url,
    read_store_url,
)
from headway.core.extras import cure
from headway.core.parsing import Setting, number, one_of, read, whole_number
from headway.core.secrets import hidden, shown_url
from headway.core.sweep_settings import SweepSettings
from headway.core.worker_settings import WorkerSettings

__all__ = [
    "SHARED_COUNTERS",
    "MongoUrl",
    "PostgresUrl",
    "Setting",
    "SqliteUrl",
    "SweepSettings",
    "WorkerSettings",
    "cure",
    "environment",
    "hidden",
    "log_level",
    "number",
    "one_of",
    "read",
    "read_engine_url",
    "read_sequences_url",
    "read_store_url",
    "shown_url",
    "whole_number",
]
