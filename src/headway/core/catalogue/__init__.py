"""The error tables, one file for each family, in the order in which they are asked.

Every name in them is checked against the installed libraries by a test.
"""

from dataclasses import replace

from headway.core.catalogue import amqp, http, mongodb, postgresql, python, redis, sqlite
from headway.core.classify import ANY, Classifier
from headway.core.errors import ConfigurationError
from headway.core.failure import Diagnosis, Verdict

DEFAULT_RULES = (
    *python.OWN,
    *postgresql.RULES,
    *sqlite.RULES,
    *mongodb.RULES,
    *redis.RULES,
    *http.RULES,
    *amqp.RULES,
    *python.RULES,
)

DEFAULT_CLASSIFIER = Classifier(rules=DEFAULT_RULES)
"""All tables; what no rule knows is transient."""

PROGRAMMING = tuple(rule.name for rule in DEFAULT_RULES if rule.error_type == "PROGRAMMING_ERROR")
"""Rules for errors in code, which the next version of a service may not make."""
_NAMES = frozenset(rule.name for rule in DEFAULT_RULES)
_BUILT_IN = frozenset(
    (rule.name, rule.verdict) for rule in DEFAULT_RULES if rule is not python.PERMANENT
)


def is_of_user(diagnosis: Diagnosis) -> bool:
    """Say whether the user gave this verdict, by a rule or a PermanentError, and not a table."""
    given = (diagnosis.rule, diagnosis.verdict)
    return diagnosis.rule != "unmatched" and given not in _BUILT_IN


def has_default_rules(classifier: Classifier) -> bool:
    """Say whether a classifier has some of the tables; who takes but a part of them means it."""
    return any(rule.name in _NAMES for rule in classifier.rules)


def is_known(error: BaseException) -> bool:
    """Say whether a table names the class of an error, whatever code the error carries."""
    names = {f"{base.__module__}.{base.__qualname__}" for base in type(error).__mro__}
    return any(rule.types != ANY and not names.isdisjoint(rule.types) for rule in DEFAULT_RULES)


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
    if any(
        each.classify(error).error_type in _OF_AN_ENGINE for each in (DEFAULT_CLASSIFIER, _ENGINES)
    ):
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

TRANSACTION_CLASSIFIER = Classifier(
    rules=tuple(
        rule
        if rule.error_type in _TRANSACTION_TYPES
        else replace(rule, verdict=Verdict.PERMANENT, error_type="UNKNOWN_ERROR")
        for rule in DEFAULT_RULES
    ),
    unmatched=Verdict.PERMANENT,
)
"""The same tables as a transaction sees them: conflicts and lost connections, else permanent."""
