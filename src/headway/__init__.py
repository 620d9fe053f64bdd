"""Recoverability for event-driven Python.

Every piece of work finishes, or stops where a person sees why and can set it going again.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headway.core.lazy import lazily

if TYPE_CHECKING:
    from headway.assembly.connection import connect
    from headway.assembly.handling import handle_event_with_retry
    from headway.assembly.resequencing import Resequencer
    from headway.assembly.retrying import retry, retry_on_oc000
    from headway.assembly.running import run_services
    from headway.assembly.sweeping import Sweeper
    from headway.assembly.transactions import create_operations_table, run_transaction
    from headway.core.conflict import classify_dsql_error, is_oc000_error
    from headway.core.errors import (
        AlreadyStoredError,
        ConfigurationError,
        DocumentNotFoundError,
        DuplicateEventError,
        HeadwayError,
        OutcomeUnknownError,
        PermanentError,
    )
    from headway.core.event import Event
    from headway.core.lifecycle import Lifecycle
    from headway.core.policy import RetryConfig, RetryPolicy
    from headway.runtime.blocking import BlockingWork
    from headway.runtime.service import Service
    from headway.runtime.work import Work

    __version__: str

__all__ = [
    "AlreadyStoredError",
    "BlockingWork",
    "ConfigurationError",
    "DocumentNotFoundError",
    "DuplicateEventError",
    "Event",
    "HeadwayError",
    "Lifecycle",
    "OutcomeUnknownError",
    "PermanentError",
    "Resequencer",
    "RetryConfig",
    "RetryPolicy",
    "Service",
    "Sweeper",
    "Work",
    "classify_dsql_error",
    "connect",
    "create_operations_table",
    "handle_event_with_retry",
    "is_oc000_error",
    "retry",
    "retry_on_oc000",
    "run_services",
    "run_transaction",
]

_HOME = {
    "connect": "assembly.connection",
    "handle_event_with_retry": "assembly.handling",
    "Resequencer": "assembly.resequencing",
    "retry": "assembly.retrying",
    "retry_on_oc000": "assembly.retrying",
    "run_services": "assembly.running",
    "Sweeper": "assembly.sweeping",
    "create_operations_table": "assembly.transactions",
    "run_transaction": "assembly.transactions",
    "classify_dsql_error": "core.conflict",
    "is_oc000_error": "core.conflict",
    "AlreadyStoredError": "core.errors",
    "ConfigurationError": "core.errors",
    "DocumentNotFoundError": "core.errors",
    "DuplicateEventError": "core.errors",
    "HeadwayError": "core.errors",
    "OutcomeUnknownError": "core.errors",
    "PermanentError": "core.errors",
    "Event": "core.event",
    "Lifecycle": "core.lifecycle",
    "RetryConfig": "core.policy",
    "RetryPolicy": "core.policy",
    "BlockingWork": "runtime.blocking",
    "Service": "runtime.service",
    "Work": "runtime.work",
}


if not TYPE_CHECKING:  # a checker that read this would accept any name
    _load = lazily("headway", _HOME)

    def __getattr__(name: str) -> Any:
        """Load a public name on first use, so that importing headway costs nothing."""
        if name == "__version__":
            return import_module("importlib.metadata").version("headway")
        return _load(name)


def __dir__() -> list[str]:
    return __all__
