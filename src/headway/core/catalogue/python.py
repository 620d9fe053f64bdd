"""Our own exceptions, and those of Python itself."""

import errno

from headway.core.classify import Rule
from headway.core.failure import Verdict

PERMANENT = Rule(
    name="headway.permanent",
    verdict=Verdict.PERMANENT,
    error_type="PERMANENT_ERROR",
    types=frozenset({"headway.core.errors.PermanentError"}),
)
"""First of all: whatever else the class of such an error is, the user said what it means."""

OWN = (
    PERMANENT,
    Rule(
        name="headway.document_not_found",
        verdict=Verdict.NOT_YET,
        error_type="DOCUMENT_NOT_FOUND",
        types=frozenset({"headway.core.errors.DocumentNotFoundError"}),
    ),
    Rule(
        name="headway.condition_lost",
        verdict=Verdict.TRANSIENT,
        error_type="OC000_TRANSACTION_CONFLICT",
        types=frozenset({"headway.core.errors.ConditionLostError"}),
    ),
    Rule(
        name="headway.handler_timeout",
        verdict=Verdict.TRANSIENT,
        error_type="HANDLER_TIMEOUT",
        types=frozenset({"headway.core.errors.HandlerTimeoutError"}),
    ),
    Rule(
        name="headway.duplicate_event",
        verdict=Verdict.PERMANENT,
        error_type="DUPLICATE_EVENT",
        types=frozenset({"headway.core.errors.DuplicateEventError"}),
    ),
    Rule(
        name="headway.outcome_unknown",
        verdict=Verdict.UNKNOWN_OUTCOME,
        error_type="CONNECTION_ERROR",
        types=frozenset({"headway.core.errors.OutcomeUnknownError"}),
    ),
    Rule(
        name="headway.misuse",
        verdict=Verdict.PERMANENT,
        error_type="PROGRAMMING_ERROR",
        types=frozenset(
            {
                "headway.core.errors.ConfigurationError",
                "headway.core.errors.NotAwaitedError",
                "headway.core.errors.TooManyHopsError",
                "headway.core.errors.TransactionEndedError",
                "headway.core.errors.TransactionRolledBackError",
                "headway.core.errors.UnsendableError",
                "headway.core.errors.UnstorableError",
            }
        ),
    ),
)

_UNREACHABLE = (
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETRESET,
    errno.ENETUNREACH,
    errno.EPIPE,
    errno.ETIMEDOUT,
)

RULES = (
    # A certificate that does not fit stays wrong, although it comes as a kind of connection error.
    Rule(
        name="python.certificate",
        verdict=Verdict.PERMANENT,
        error_type="CERTIFICATE_ERROR",
        types=frozenset({"ssl.SSLCertVerificationError"}),
    ),
    Rule(
        name="python.cancelled",
        verdict=Verdict.PERMANENT,
        error_type="CANCELLED",
        types=frozenset({"concurrent.futures._base.CancelledError"}),
    ),
    Rule(
        name="python.connection",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset(
            {
                "builtins.ConnectionError",
                "builtins.TimeoutError",
                "asyncio.exceptions.IncompleteReadError",
                "socket.gaierror",
                "ssl.SSLEOFError",
                "ssl.SSLZeroReturnError",
            }
        ),
    ),
    Rule(
        name="python.network",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset({"builtins.OSError"}),
        at=("errno",),
        codes=frozenset(_UNREACHABLE),
    ),
    Rule(
        name="python.validation",
        verdict=Verdict.PERMANENT,
        error_type="VALIDATION_ERROR",
        types=frozenset(
            {
                "builtins.ValueError",  # json, msgspec, pydantic and Unicode errors are ValueErrors
                "jsonschema.exceptions.ValidationError",
            }
        ),
    ),
    Rule(
        name="python.programming",
        verdict=Verdict.PERMANENT,
        error_type="PROGRAMMING_ERROR",
        types=frozenset(
            {
                "builtins.ArithmeticError",
                "builtins.AssertionError",
                "builtins.AttributeError",
                "builtins.ImportError",
                "builtins.LookupError",
                "builtins.NameError",
                "builtins.NotImplementedError",
                "builtins.RecursionError",
                "builtins.SyntaxError",
                "builtins.TypeError",
            }
        ),
    ),
    # asyncio gathers the refusals of several addresses into one OSError without a number.
    Rule(
        name="python.connect_failed",
        verdict=Verdict.TRANSIENT,
        error_type="CONNECTION_ERROR",
        types=frozenset({"builtins.OSError"}),
        text=("connect call failed",),
    ),
)

_NO_ROOM = (errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC)

OF_ENGINES = (
    Rule(
        name="python.resources",
        verdict=Verdict.TRANSIENT,
        error_type="RESOURCES_EXHAUSTED",
        types=frozenset({"builtins.OSError"}),
        at=("errno",),
        codes=frozenset(_NO_ROOM),
    ),
    Rule(
        name="python.memory",
        verdict=Verdict.TRANSIENT,
        error_type="RESOURCES_EXHAUSTED",
        types=frozenset({"builtins.MemoryError"}),
    ),
    Rule(
        name="python.permission",
        verdict=Verdict.TRANSIENT,
        error_type="PERMISSION_DENIED",
        types=frozenset({"builtins.OSError"}),
        at=("errno",),
        codes=frozenset({errno.EACCES, errno.EPERM}),
    ),
    Rule(
        name="python.read_only",
        verdict=Verdict.TRANSIENT,
        error_type="READ_ONLY",
        types=frozenset({"builtins.OSError"}),
        at=("errno",),
        codes=frozenset({errno.EROFS}),
    ),
    Rule(
        name="python.storage",
        verdict=Verdict.TRANSIENT,
        error_type="STORAGE_ERROR",
        types=frozenset({"builtins.OSError"}),
        at=("errno",),
        codes=frozenset({errno.EIO}),
    ),
)
"""Of calls to an engine only: the files of a handler are its own affair."""
