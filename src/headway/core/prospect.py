"""What awaits a document: what a sweep would do with it, when, and why not now."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headway.core.document import (
    CLAIM_UNTIL,
    LAST_ATTEMPT_TIME,
    LEASE_UNTIL,
    RETRY_AT,
    moment,
    past,
)
from headway.core.sweep import (
    GiveUp,
    Judgement,
    Leave,
    Requeue,
    SweepRule,
    Why,
    backoff_ends,
    judge,
)

_OBSTACLES = len(Why)


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a sweep would do now; and when it does more than leave the document alone."""

    judgement: Judgement
    due: datetime | None = None
    """None: never, unless a person decides."""
    then: Requeue | GiveUp | None = None
    """What a sweep does when it is due."""


def prospect(document: Mapping[str, Any], rule: SweepRule, now: datetime) -> Prospect:
    """Say what awaits a document, if nothing else happens to it."""
    judgement = then = judge(document, rule, now)
    at = now
    for _ in range(_OBSTACLES):  # behind one obstacle there may be another
        if not isinstance(then, Leave):
            return Prospect(judgement, at, then)
        end = _end(document, rule, at, then.why)
        if end is None:
            break
        at = max(at, end)
        then = judge(document, rule, at)
    return Prospect(judgement)


def _end(document: Mapping[str, Any], rule: SweepRule, now: datetime, why: Why) -> datetime | None:
    """Say until when a document is left alone for this reason."""
    match why:
        case Why.SCHEDULED:
            return moment(document.get(RETRY_AT))
        case Why.LEASED:
            return moment(document.get(LEASE_UNTIL))
        case Why.CLAIMED:
            return moment(document.get(CLAIM_UNTIL))
        case Why.BACKOFF:
            return backoff_ends(document, rule, now)
        case Why.IN_HAND:
            since, lasts = LAST_ATTEMPT_TIME, rule.stuck_after
        case Why.YOUNG:
            since, lasts = rule.lifecycle.created, rule.grace
        case _:
            return None
    began = past(document.get(since), now)
    return None if began is None else began + lasts
