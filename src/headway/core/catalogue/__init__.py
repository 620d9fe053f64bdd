"""The error tables, one file for each family, in the order in which they are asked.

Every name in them is checked against the installed libraries by a test.
"""

from dataclasses import replace

from headway.core.catalogue import amqp, http, mongodb, postgresql, python, redis, sqlite
from headway.core.classify import Classifier
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
