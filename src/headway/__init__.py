"""Recoverability for event-driven Python.

Every piece of work finishes, or stops where a person sees why and can set it going again.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.adapters.noop.metrics import NoOpMetricsCollector
    from headway.assembly.connection import connect
    from headway.assembly.handling import handle_event_with_retry
    from headway.assembly.metrics import create_metrics_collector
    from headway.assembly.reporting import error_reporter
    from headway.assembly.resequencing import Resequencer
    from headway.assembly.retrying import retry, retry_on_oc000
    from headway.assembly.running import run_services
    from headway.assembly.sweeping import Sweeper
    from headway.assembly.transactions import create_operations_table, run_transaction
    from headway.core.backoff import AddedJitter, Exponential, FullJitter, Stepped
    from headway.core.classify import Classifier, Rule
    from headway.core.conflict import classify_dsql_error, is_oc000_error
    from headway.core.errors import (
        AlreadyStoredError,
        ConditionLostError,
        ConfigurationError,
        DocumentNotFoundError,
        DuplicateEventError,
        HeadwayError,
        OutcomeUnknownError,
    )
    from headway.core.event import Event
    from headway.core.failure import Verdict
    from headway.core.health import FloodRule, OutageRule
    from headway.core.letter import Letter
    from headway.core.lifecycle import Lifecycle
    from headway.core.policy import RetryConfig, RetryPolicy
    from headway.core.sequence_settings import OnGap, OnLate, SequenceSettings
    from headway.runtime.blocking import BlockingWork
    from headway.runtime.case import Abandoned, Delayed
    from headway.runtime.failed import FailedQueues
    from headway.runtime.service import Service
    from headway.runtime.work import Work
    from headway.runtime.worker_settings import WorkerSettings

__all__ = [
    "Abandoned",
    "AddedJitter",
    "AlreadyStoredError",
    "BlockingWork",
    "Classifier",
    "ConditionLostError",
    "ConfigurationError",
    "Delayed",
    "DocumentNotFoundError",
    "DuplicateEventError",
    "Event",
    "Exponential",
    "FailedQueues",
    "FloodRule",
    "FullJitter",
    "HeadwayError",
    "Letter",
    "Lifecycle",
    "NoOpMetricsCollector",
    "OnGap",
    "OnLate",
    "OutageRule",
    "OutcomeUnknownError",
    "Resequencer",
    "RetryConfig",
    "RetryPolicy",
    "Rule",
    "SequenceSettings",
    "Service",
    "Stepped",
    "Sweeper",
    "Verdict",
    "Work",
    "WorkerSettings",
    "classify_dsql_error",
    "connect",
    "create_metrics_collector",
    "create_operations_table",
    "error_reporter",
    "handle_event_with_retry",
    "is_oc000_error",
    "retry",
    "retry_on_oc000",
    "run_services",
    "run_transaction",
]

_HOME = {
    "NoOpMetricsCollector": "adapters.noop.metrics",
    "connect": "assembly.connection",
    "handle_event_with_retry": "assembly.handling",
    "create_metrics_collector": "assembly.metrics",
    "error_reporter": "assembly.reporting",
    "Resequencer": "assembly.resequencing",
    "retry": "assembly.retrying",
    "retry_on_oc000": "assembly.retrying",
    "run_services": "assembly.running",
    "Sweeper": "assembly.sweeping",
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
    "ConditionLostError": "core.errors",
    "ConfigurationError": "core.errors",
    "DocumentNotFoundError": "core.errors",
    "DuplicateEventError": "core.errors",
    "HeadwayError": "core.errors",
    "OutcomeUnknownError": "core.errors",
    "Event": "core.event",
    "Verdict": "core.failure",
    "FloodRule": "core.health",
    "OutageRule": "core.health",
    "Letter": "core.letter",
    "Lifecycle": "core.lifecycle",
    "RetryConfig": "core.policy",
    "RetryPolicy": "core.policy",
    "OnGap": "core.sequence_settings",
    "OnLate": "core.sequence_settings",
    "SequenceSettings": "core.sequence_settings",
    "BlockingWork": "runtime.blocking",
    "Abandoned": "runtime.case",
    "Delayed": "runtime.case",
    "FailedQueues": "runtime.failed",
    "Service": "runtime.service",
    "Work": "runtime.work",
    "WorkerSettings": "runtime.worker_settings",
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
