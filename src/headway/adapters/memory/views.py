"""What is in a view, said as plainly as it can be: real stores ask their indexes."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from headway.core.document import (
    CLAIM_TOKEN,
    CLAIM_UNTIL,
    FARTHEST_AHEAD,
    FARTHEST_CLAIM,
    LAST_ATTEMPT_TIME,
    LEASE_TOKEN,
    LEASE_UNTIL,
    moment,
    past,
)
from headway.core.lifecycle import State
from headway.core.sweep import SweepRule
from headway.core.writes import Document
from headway.ports.candidates import View, view_of_failed

_NEVER = datetime.min.replace(tzinfo=UTC)


def is_in(view: View, document: Document, rule: SweepRule, now: datetime) -> bool:
    """Say whether a document may be due for this reason."""
    state = rule.lifecycle.state(document)
    match view:
        case View.FAILED | View.OUTDATED | View.PERMANENT:
            return state is State.FAILED and view_of_failed(document, rule) is view
        case View.UNMOVED:
            began = attempted(document, now)
            unmoved = began is None or began + rule.stuck_after <= now
            return state is State.PENDING and unmoved
        case View.LEASE_OVER:
            return _is_leased(document, rule) and _lease_is_over(document, rule, now)
        case View.CLAIM_OVER:
            claimed = document.get(CLAIM_TOKEN) is not None
            is_open = state in {State.PENDING, State.FAILED}
            return is_open and claimed and _over(document, CLAIM_UNTIL, now, FARTHEST_CLAIM)


def has_lease(document: Document, rule: SweepRule, now: datetime) -> bool:
    """Say whether a document is pending and has a lease that runs."""
    return _is_leased(document, rule) and not _lease_is_over(document, rule, now)


def _is_leased(document: Document, rule: SweepRule) -> bool:
    pending = rule.lifecycle.state(document) is State.PENDING
    return pending and document.get(LEASE_TOKEN) is not None


def _lease_is_over(document: Document, rule: SweepRule, now: datetime) -> bool:
    farthest = max(FARTHEST_CLAIM, rule.lifecycle.lease or timedelta()) + FARTHEST_AHEAD
    return _over(document, LEASE_UNTIL, now, farthest)


def attempted(document: Document, now: datetime) -> datetime | None:
    """Say when a document was last attempted, as far as that can be read."""
    return past(document.get(LAST_ATTEMPT_TIME), now)


def age(document: Document, now: datetime) -> tuple[datetime, str]:
    """Give what the documents of a view are ordered by."""
    return attempted(document, now) or _NEVER, document["_id"]


def _over(document: Mapping[str, Any], field: str, now: datetime, farthest: timedelta) -> bool:
    until = moment(document.get(field))
    return until is None or not now < until <= now + farthest
