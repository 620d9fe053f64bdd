"""Open an engine on a clock of your own, and run a worker or a publisher on it.

For the author of an engine, and for tests that need more than `Trial`: several workers on one
engine, an engine that fails at a chosen call, a bus of one kind with a store of another.
"""

from typing import TYPE_CHECKING

from headway.core.lazy import lazily

if TYPE_CHECKING:
    from headway.adapters.memory.engine import memory_engine
    from headway.adapters.memory.sequences import MemorySequences, MemoryShelf
    from headway.adapters.memory.state import State
    from headway.adapters.memory.store import MemoryStore
    from headway.adapters.mongodb.store import MongoStore, mongodb_store
    from headway.adapters.postgres.store import PostgresStore, postgres_store
    from headway.adapters.rabbitmq.engine import RabbitParts, rabbitmq_parts
    from headway.adapters.redis.clustered import clustered_sequences
    from headway.adapters.redis.sequences import RedisSequences, redis_sequences
    from headway.adapters.sqlite.engine import SqliteEngine, sqlite_engine
    from headway.adapters.sqlite.sequences import sqlite_sequences
    from headway.adapters.sqlite.store import SqliteStore, sqlite_store
    from headway.assembly.engine import open_engine
    from headway.runtime.joined_engine import StoreParts, with_store, without_store
    from headway.runtime.publisher import Publisher, message_of
    from headway.runtime.worker import Worker

__all__ = [
    "MemorySequences",
    "MemoryShelf",
    "MemoryStore",
    "MongoStore",
    "PostgresStore",
    "Publisher",
    "RabbitParts",
    "RedisSequences",
    "SqliteEngine",
    "SqliteStore",
    "State",
    "StoreParts",
    "Worker",
    "clustered_sequences",
    "memory_engine",
    "message_of",
    "mongodb_store",
    "open_engine",
    "postgres_store",
    "rabbitmq_parts",
    "redis_sequences",
    "sqlite_engine",
    "sqlite_sequences",
    "sqlite_store",
    "with_store",
    "without_store",
]

_HOME = {
    "MemorySequences": "adapters.memory.sequences",
    "MemoryShelf": "adapters.memory.sequences",
    "MemoryStore": "adapters.memory.store",
    "MongoStore": "adapters.mongodb.store",
    "PostgresStore": "adapters.postgres.store",
    "Publisher": "runtime.publisher",
    "RabbitParts": "adapters.rabbitmq.engine",
    "RedisSequences": "adapters.redis.sequences",
    "SqliteEngine": "adapters.sqlite.engine",
    "SqliteStore": "adapters.sqlite.store",
    "State": "adapters.memory.state",
    "StoreParts": "runtime.joined_engine",
    "Worker": "runtime.worker",
    "clustered_sequences": "adapters.redis.clustered",
    "memory_engine": "adapters.memory.engine",
    "message_of": "runtime.publisher",
    "mongodb_store": "adapters.mongodb.store",
    "open_engine": "assembly.engine",
    "postgres_store": "adapters.postgres.store",
    "rabbitmq_parts": "adapters.rabbitmq.engine",
    "redis_sequences": "adapters.redis.sequences",
    "sqlite_engine": "adapters.sqlite.engine",
    "sqlite_sequences": "adapters.sqlite.sequences",
    "sqlite_store": "adapters.sqlite.store",
    "with_store": "runtime.joined_engine",
    "without_store": "runtime.joined_engine",
}

if not TYPE_CHECKING:  # a checker that read this would accept any name
    __getattr__ = lazily(__name__, _HOME)
