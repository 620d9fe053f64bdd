"""When to retry, how long to wait, and which errors are worth it."""

from headway.core.action import Reason
from headway.core.backoff import (
    AddedJitter,
    Backoff,
    Exponential,
    FullJitter,
    Jitter,
    NoJitter,
    Stepped,
)
from headway.core.catalogue import DEFAULT_CLASSIFIER, DEFAULT_RULES, TRANSACTION_CLASSIFIER
from headway.core.classify import Classifier, Rule, rules_for
from headway.core.failure import Diagnosis, Failure, History, Verdict
from headway.core.health import FloodRule, OutageRule
from headway.core.policy import TRANSIENT, decide

__all__ = [
    "DEFAULT_CLASSIFIER",
    "DEFAULT_RULES",
    "TRANSACTION_CLASSIFIER",
    "TRANSIENT",
    "AddedJitter",
    "Backoff",
    "Classifier",
    "Diagnosis",
    "Exponential",
    "Failure",
    "FloodRule",
    "FullJitter",
    "History",
    "Jitter",
    "NoJitter",
    "OutageRule",
    "Reason",
    "Rule",
    "Stepped",
    "Verdict",
    "decide",
    "rules_for",
]
