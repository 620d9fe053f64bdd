"""What an error of the driver means here: try again, the server is away, or a value is wrong."""

from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    DuplicateKeyError,
    OperationFailure,
    PyMongoError,
    WriteError,
)

from headway.core.catalogue import names_engine

TRANSIENT = "TransientTransactionError"
UNKNOWN = "UnknownTransactionCommitResult"
_DUPLICATE = frozenset({11000, 11001, 12582})
_ENDED = 251
_TOO_SLOW = 50


def unwrapped(error: Exception) -> Exception:
    """Give the first of the errors of a bulk: it says more, and without the documents."""
    if not isinstance(error, BulkWriteError):
        return error
    for found in error.details.get("writeErrors") or ():
        kind = DuplicateKeyError if found.get("code") in _DUPLICATE else WriteError
        first = kind(str(found.get("errmsg")), found.get("code"), found)
        first.__cause__ = error
        return first
    return error


def is_duplicate(error: Exception) -> bool:
    return isinstance(unwrapped(error), DuplicateKeyError)


def is_conflict(error: Exception) -> bool:
    """Say whether others were quicker, so that the whole transaction may be tried again.

    So it is where an id is there that was not, a moment ago: it was looked for before.
    """
    error = unwrapped(error)
    if isinstance(error, DuplicateKeyError):
        return dict((error.details or {}).get("keyPattern") or {}) == {"_id": 1}
    labelled = isinstance(error, PyMongoError) and error.has_error_label(TRANSIENT)
    return labelled and not isinstance(error, ConnectionFailure)


def is_away(error: Exception) -> bool:
    """Say whether it is nobody's fault here: the server is away, or has no room."""
    if not isinstance(error, PyMongoError):
        return False
    labelled = error.has_error_label(TRANSIENT) or error.has_error_label("RetryableWriteError")
    return labelled or names_engine(error)


def has_ended(error: Exception) -> bool:
    """Say whether the server knows nothing of the transaction any more."""
    return isinstance(error, OperationFailure) and error.code == _ENDED


def is_too_slow(error: PyMongoError) -> bool:
    """Say whether a statement was given up because its time was up."""
    error_of_one = unwrapped(error)
    coded = isinstance(error_of_one, OperationFailure) and error_of_one.code == _TOO_SLOW
    return coded or error.timeout
