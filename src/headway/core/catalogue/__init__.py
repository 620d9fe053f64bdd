"""The error tables, one file for each family, in the order in which they are asked.

Every name in them is checked against the installed libraries by a test.
"""

from dataclasses import replace

from headway.core.catalogue import amqp, http, mongodb, postgresql, python, redis, sqlite
from headway.core.classify import Classifier
from headway.core.errors import ConfigurationError
from headway.core.failure import Verdict

RULES = (
    *python.OWN,
    *postgresql.RULES,
    *sqlite.RULES,
    *mongodb.RULES,
    *redis.RULES,
    *http.RULES,
    *amqp.RULES,
    *python.RULES,
)

EVERYTHING = Classifier(rules=RULES)
"""All tables; what no rule knows is transient."""

_ENGINES = Classifier(
    rules=(
        *postgresql.OF_ENGINES,
        *sqlite.OF_ENGINES,
        *mongodb.OF_ENGINES,
        *python.OF_ENGINES,
    )
)
_OF_AN_ENGINE = frozenset(
    {
        "CERTIFICATE_ERROR",
        "CONNECTION_ERROR",
        "CREDENTIALS_REFUSED",
        "PERMISSION_DENIED",
        "QUERY_CANCELLED",
        "READ_ONLY",
        "RESOURCES_EXHAUSTED",
        "SCHEMA_MISSING",
        "STORAGE_ERROR",
    }
)


def names_engine(error: BaseException) -> bool:
    """Say whether an error of an engine is about the engine itself, and not about one item.

    This is the one definition of "unavailable". Such an error never ends an event: it waits. Ask
    only about errors of calls to an engine; what a handler raises may come from anywhere.
    """
    if any(each.classify(error).error_type in _OF_AN_ENGINE for each in (EVERYTHING, _ENGINES)):
        return True
    # An adapter explains with it why the server refused to be used.
    cause = error.__cause__
    return isinstance(error, ConfigurationError) and cause is not None and names_engine(cause)


_TRANSACTION_TYPES = {
    "OC000_TRANSACTION_CONFLICT",
    "CONNECTION_ERROR",
    "DUPLICATE_EVENT",
    "UNIQUE_VIOLATION",
}

TRANSACTIONS = Classifier(
    rules=tuple(
        rule
        if rule.error_type in _TRANSACTION_TYPES
        else replace(rule, verdict=Verdict.PERMANENT, error_type="UNKNOWN_ERROR")
        for rule in RULES
    ),
    unmatched=Verdict.PERMANENT,
)
"""The same tables as a transaction sees them: conflicts and lost connections, else permanent."""
