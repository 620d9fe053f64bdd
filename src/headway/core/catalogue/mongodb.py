"""MongoDB: the server's own labels first, then codes and pymongo's classes."""

from headway.core.classify import Rule
from headway.core.failure import Verdict

_ERRORS = frozenset({"pymongo.errors.PyMongoError"})
_REFUSALS = frozenset({"pymongo.errors.OperationFailure"})
_LABELS = ("_error_labels",)
_CODE = ("details.writeErrors.0.code", "code")
"""The code of a bulk says only that it is one; its first error says more."""
_DUPLICATE_KEY = frozenset({11000, 11001, 12582})

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
        types=_REFUSALS,
        at=_CODE,
        codes=frozenset({112, 246, 251}),  # WriteConflict, SnapshotUnavailable, NoSuchTransaction
    ),
    Rule(
        name="mongodb.transient_transaction",
        verdict=Verdict.TRANSIENT,
        error_type="OC000_TRANSACTION_CONFLICT",
        types=_REFUSALS,
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
        name="mongodb.unique_in_bulk",
        verdict=Verdict.PERMANENT,
        error_type="UNIQUE_VIOLATION",
        types=frozenset({"pymongo.errors.BulkWriteError"}),
        at=_CODE,
        codes=_DUPLICATE_KEY,
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
        name="mongodb.no_primary",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=_REFUSALS,
        at=_CODE,
        # Hosts that are away, members that are no primary (any more), servers that shut down.
        codes=frozenset(
            {
                *(6, 7, 89, 202, 317, 384, 9001),
                *(91, 133, 189, 10058, 10107, 11600, 11602, 13388, 13435, 13436),
            }
        ),
    ),
    Rule(
        name="mongodb.credentials",
        verdict=Verdict.PERMANENT,
        error_type="CREDENTIALS_REFUSED",
        types=_REFUSALS,
        at=_CODE,
        # UserNotFound, Unauthorized, AuthenticationFailed, RoleNotFound,
        # ReauthenticationRequired; and the first ones on Atlas.
        codes=frozenset({11, 13, 18, 31, 391, 8000}),
    ),
    Rule(
        name="mongodb.cancelled",
        verdict=Verdict.TRANSIENT,
        error_type="QUERY_CANCELLED",
        types=_REFUSALS,
        at=_CODE,
        # LockTimeout, LockBusy, MaxTimeMSExpired, ExceededTimeLimit, TransactionExceededLifetime
        codes=frozenset({24, 46, 50, 262, 290}),
    ),
    Rule(
        name="mongodb.resources",
        verdict=Verdict.TRANSIENT,
        error_type="RESOURCES_EXHAUSTED",
        types=_REFUSALS,
        at=_CODE,
        # ExceededMemoryLimit, TemporarilyUnavailable, OutOfDiskSpace; and too few members for a
        # write concern or a read concern.
        codes=frozenset({64, 79, 100, 134, 146, 365, 14031}),
    ),
    Rule(
        name="mongodb.validation",
        verdict=Verdict.PERMANENT,
        error_type="VALIDATION_ERROR",
        types=_REFUSALS,
        at=_CODE,
        # BadValue, FailedToParse, TypeMismatch, names of fields, DocumentValidationFailure, and
        # documents that are too large, when they are sent or after an update.
        codes=frozenset({2, 9, 14, 52, 53, 56, 57, 66, 121, 10334, 17280, 17419, 17420}),
    ),
    Rule(
        name="mongodb.programming",
        verdict=Verdict.PERMANENT,
        error_type="PROGRAMMING_ERROR",
        types=_REFUSALS,
        at=_CODE,
        # IllegalOperation, operators, CommandNotFound, options, names of collections, indexes,
        # views, pipelines, and what cannot be in a transaction or is too much for one.
        codes=frozenset({20, 40, 59, 72, 73, 85, 86, 166, 168, 263, 388}),
    ),
    Rule(
        name="mongodb.document",
        verdict=Verdict.PERMANENT,
        error_type="VALIDATION_ERROR",
        types=frozenset({"bson.errors.BSONError"}),
    ),
    Rule(
        name="mongodb.misuse",
        verdict=Verdict.PERMANENT,
        error_type="PROGRAMMING_ERROR",
        types=frozenset(
            {
                "pymongo.errors.CollectionInvalid",
                "pymongo.errors.ConfigurationError",
                "pymongo.errors.InvalidName",
                "pymongo.errors.InvalidOperation",
            }
        ),
    ),
)

OF_ENGINES = (
    # A client that was closed, or a session of a client that was replaced.
    Rule(
        name="mongodb.replaced",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset({"pymongo.errors.InvalidOperation"}),
    ),
)
"""Of calls to an engine only: our calls are right, so the client is not any more."""
