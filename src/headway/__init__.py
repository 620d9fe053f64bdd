"""Recoverability for event-driven Python.

Every piece of work finishes, or stops where a person sees why and can set it going again.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.assembly.retrying import retry, retry_on_oc000
    from headway.assembly.transactions import create_operations_table, run_transaction
    from headway.core.backoff import AddedJitter, Exponential, FullJitter, Stepped
    from headway.core.classify import Classifier, Rule
    from headway.core.conflict import classify_dsql_error, is_oc000_error
    from headway.core.errors import (
        AlreadyStoredError,
        ConfigurationError,
        DocumentNotFoundError,
        DuplicateEventError,
        HeadwayError,
        OutcomeUnknownError,
    )
    from headway.core.failure import Verdict
    from headway.core.policy import RetryConfig, RetryPolicy

__all__ = [
    "AddedJitter",
    "AlreadyStoredError",
    "Classifier",
    "ConfigurationError",
    "DocumentNotFoundError",
    "DuplicateEventError",
    "Exponential",
    "FullJitter",
    "HeadwayError",
    "OutcomeUnknownError",
    "RetryConfig",
    "RetryPolicy",
    "Rule",
    "Stepped",
    "Verdict",
    "classify_dsql_error",
    "create_operations_table",
    "is_oc000_error",
    "retry",
    "retry_on_oc000",
    "run_transaction",
]

_HOME = {
    "retry": "assembly.retrying",
    "retry_on_oc000": "assembly.retrying",
    "create_operations_table": "assembly.transactions",
    "run_transaction": "assembly.transactions",
    "AddedJitter": "core.backoff",
    "Exponential": "core.backoff",
    "FullJitter": "core.backoff",
    "Stepped": "core.backoff",
    "Classifier": "core.classify",
    "Rule": "core.classify",
    "classify_dsql_error": "core.conflict",
    "is_oc000_error": "core.conflict",
    "AlreadyStoredError": "core.errors",
    "ConfigurationError": "core.errors",
    "DocumentNotFoundError": "core.errors",
    "DuplicateEventError": "core.errors",
    "HeadwayError": "core.errors",
    "OutcomeUnknownError": "core.errors",
    "Verdict": "core.failure",
    "RetryConfig": "core.policy",
    "RetryPolicy": "core.policy",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for, so that importing headway costs nothing."""
    if name == "__version__":
        return import_module("importlib.metadata").version("headway")
    if name not in _HOME:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    value = getattr(import_module(f"headway.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
