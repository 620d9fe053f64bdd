"""MongoDB: the server's own labels first, then codes and pymongo's classes."""

from headway.core.classify import Rule
from headway.core.failure import Verdict

_ERRORS = frozenset({"pymongo.errors.PyMongoError"})
_LABELS = ("_error_labels",)

RULES = (
    Rule(
        name="mongodb.outcome_unknown",
        verdict=Verdict.UNKNOWN_OUTCOME,
        error_type="CONNECTION_ERROR",
        types=_ERRORS,
        at=_LABELS,
        codes=frozenset({"UnknownTransactionCommitResult"}),
    ),
    Rule(
        name="mongodb.conflict",
        verdict=Verdict.TRANSIENT,
        error_type="OC000_TRANSACTION_CONFLICT",
        types=frozenset({"pymongo.errors.OperationFailure"}),
        at=("code",),
        codes=frozenset({112, 246, 251}),  # WriteConflict, SnapshotUnavailable, NoSuchTransaction
    ),
    Rule(
        name="mongodb.transient_transaction",
        verdict=Verdict.TRANSIENT,
        error_type="OC000_TRANSACTION_CONFLICT",
        types=frozenset({"pymongo.errors.OperationFailure"}),
        at=_LABELS,
        codes=frozenset({"TransientTransactionError"}),
    ),
    Rule(
        name="mongodb.unique",
        verdict=Verdict.PERMANENT,
        error_type="UNIQUE_VIOLATION",
        types=frozenset({"pymongo.errors.DuplicateKeyError"}),
    ),
    Rule(
        name="mongodb.connection",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset({"pymongo.errors.ConnectionFailure", "pymongo.errors.WTimeoutError"}),
    ),
    Rule(
        name="mongodb.retryable",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=_ERRORS,
        at=_LABELS,
        codes=frozenset({"RetryableWriteError", "TransientTransactionError"}),
    ),
    Rule(
        name="mongodb.validation",
        verdict=Verdict.PERMANENT,
        error_type="VALIDATION_ERROR",
        types=frozenset({"pymongo.errors.OperationFailure"}),
        at=("code",),
        codes=frozenset({2, 9, 14, 121}),  # BadValue, FailedToParse, TypeMismatch, validation
    ),
)
