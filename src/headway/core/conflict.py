"""Two questions about a database error, answered with one word each for logs and metrics."""

from headway.core.catalogue import TRANSACTION_CLASSIFIER
from headway.core.failure import Verdict


def classify_dsql_error(error: BaseException) -> tuple[bool, str, str | None]:
    """Answer `(is_retryable, error_type, sqlstate)`.

    `error_type` is one of OC000_TRANSACTION_CONFLICT, CONNECTION_ERROR (both retryable),
    DUPLICATE_EVENT, UNIQUE_VIOLATION and UNKNOWN_ERROR (not retryable).
    """
    diagnosis = TRANSACTION_CLASSIFIER.classify(error)
    is_retryable = diagnosis.verdict is not Verdict.PERMANENT
    return is_retryable, diagnosis.error_type, diagnosis.code


def is_oc000_error(error: BaseException) -> bool:
    """Say whether the transaction lost against another one, so that running it again may win."""
    return TRANSACTION_CLASSIFIER.classify(error).error_type == "OC000_TRANSACTION_CONFLICT"
