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
                "redis.exceptions.OutOfMemoryError",
            }
        ),
    ),
    Rule(
        name="redis.programming",
        verdict=Verdict.PERMANENT,
        error_type="PROGRAMMING_ERROR",
        types=frozenset({"redis.exceptions.DataError", "redis.exceptions.NoScriptError"}),
    ),
    Rule(
        # It answers, and takes nothing just now. Of most of these redis-py makes no class, and
        # older servers wrap those of a script in words of their own.
        name="redis.refusing",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset({"redis.exceptions.ResponseError"}),
        text=(
            "noreplicas ",
            "misconf ",
            "busy redis is busy",
            "-busy ",
            "oom command not allowed",
            "loading redis is loading",
            "masterdown ",
            "clusterdown ",
            "tryagain ",
            "-readonly ",
        ),
    ),
)
