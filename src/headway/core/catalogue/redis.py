"""Redis: redis-py's classes."""

from headway.core.classify import Rule
from headway.core.failure import Verdict

RULES = (
    Rule(
        name="redis.conflict",
        verdict=Verdict.TRANSIENT,
        error_type="OC000_TRANSACTION_CONFLICT",
        types=frozenset({"redis.exceptions.WatchError", "redis.exceptions.TryAgainError"}),
    ),
    Rule(
        name="redis.credentials",
        verdict=Verdict.PERMANENT,
        error_type="CREDENTIALS_REFUSED",
        types=frozenset(
            {"redis.exceptions.AuthenticationError", "redis.exceptions.AuthorizationError"}
        ),
    ),
    Rule(
        name="redis.connection",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset(
            {
                "redis.exceptions.ConnectionError",
                "redis.exceptions.TimeoutError",
                "redis.exceptions.ClusterDownError",
                "redis.exceptions.ReadOnlyError",
            }
        ),
    ),
    Rule(
        name="redis.programming",
        verdict=Verdict.PERMANENT,
        error_type="PROGRAMMING_ERROR",
        types=frozenset({"redis.exceptions.DataError", "redis.exceptions.NoScriptError"}),
    ),
)
