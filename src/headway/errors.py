"""Errors that Headway raises; all of them are `HeadwayError`."""

from headway.core.errors import (
    BrokerFullError,
    ConditionLostError,
    CrashLoopError,
    DocumentReplacedError,
    HandlerTimeoutError,
    KeyTakenError,
    LetterGoneError,
    MalformedEventError,
    NotAwaitedError,
    NotPublishedError,
    PublishError,
    RefusedEventError,
    StorageLostError,
    TransactionEndedError,
    TransactionRolledBackError,
    UnreadableDocumentError,
    UnroutableEventError,
    UnsendableError,
    UnstorableError,
    WorkOverError,
)
from headway.ports.sequences import UnreadableKeyError
from headway.runtime.order import UnknownKeyError
from headway.runtime.sequence_reach import SequencesAwayError, is_unavailable

__all__ = [
    "BrokerFullError",
    "ConditionLostError",
    "CrashLoopError",
    "DocumentReplacedError",
    "HandlerTimeoutError",
    "KeyTakenError",
    "LetterGoneError",
    "MalformedEventError",
    "NotAwaitedError",
    "NotPublishedError",
    "PublishError",
    "RefusedEventError",
    "SequencesAwayError",
    "StorageLostError",
    "TransactionEndedError",
    "TransactionRolledBackError",
    "UnknownKeyError",
    "UnreadableDocumentError",
    "UnreadableKeyError",
    "UnroutableEventError",
    "UnsendableError",
    "UnstorableError",
    "WorkOverError",
    "is_unavailable",
]
