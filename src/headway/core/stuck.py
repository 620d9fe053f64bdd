"""Which documents count as stuck, wherever that is counted."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from headway.core.document import RETRY_AT
from headway.core.lifecycle import State
from headway.core.sweep import GiveUp, Leave, Requeue, SweepRule, Why, judge, stays_failed


def is_stuck(document: Mapping[str, Any], rule: SweepRule, now: datetime) -> bool:
    """Say whether a document is stuck.

    That is: it failed, and not permanently; or it is pending, and a sweep would requeue it or give
    it up, now or when its backoff is over. What a person has scheduled is as stuck as it would be
    without that.
    """
    if rule.lifecycle.state(document) is State.FAILED:
        return not stays_failed(document, rule)
    match judge({**document, RETRY_AT: None}, rule, now):
        case Requeue() | GiveUp() | Leave(why=Why.BACKOFF):
            return True
        case Leave():
            return False
