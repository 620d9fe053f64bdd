"""What an index can tell of documents that may be stuck, and what only a look at them can.

A view is one or two looks at an index. Each finds all that is in its part of the view, and little
else: times that are no dates are read afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pymongo import IndexModel
from pymongo.errors import OperationFailure

from headway.adapters.mongodb.changing import is_plain
from headway.adapters.mongodb.values import milliseconds
from headway.core.catalogue import PROGRAMMING
from headway.core.document import (
    CLAIM_TOKEN,
    CLAIM_UNTIL,
    FARTHEST_AHEAD,
    FARTHEST_CLAIM,
    LAST_ATTEMPT_TIME,
    LAST_FAILED_AT,
    LEASE_TOKEN,
    LEASE_UNTIL,
    PERMANENT_FAILURE,
    STATUS,
    moment,
    past,
)
from headway.core.errors import ConfigurationError
from headway.core.lifecycle import Lifecycle, State
from headway.core.sweep import SweepRule
from headway.core.writes import ID
from headway.ports.candidates import View, view_of_failed

Keys = tuple[tuple[str, int], ...]
BY_STATUS: Keys = ((STATUS, 1), (LAST_ATTEMPT_TIME, 1), (ID, 1))
_RULE, _VERSION = f"{PERMANENT_FAILURE}.rule", f"{PERMANENT_FAILURE}.version"
BY_FAILURE: Keys = ((_RULE, 1), (LAST_ATTEMPT_TIME, 1), (ID, 1), (_VERSION, 1))
"""Of failed documents alone: those that sweeps take up in their order, apart from the others."""
_WELL_FORMED = {
    "$expr": {
        "$and": [
            {"$eq": [{"$type": f"${PERMANENT_FAILURE}"}, "object"]},
            {"$eq": [{"$type": f"${_RULE}"}, "string"]},
            {"$in": [{"$type": f"${_VERSION}"}, ["string", "null", "missing"]]},
        ]
    }
}
"""As an expression: a query would look into lists."""
_BY_LEASE: Keys = ((LEASE_UNTIL, 1),)
_BY_CLAIM: Keys = ((CLAIM_UNTIL, 1),)
HELD = {"$gt": ""}
"""A token that is there."""


@dataclass(frozen=True, slots=True)
class Look:
    """A query, and the index that answers it; None: the server finds out."""

    query: dict[str, Any]
    index: Keys | None


def indexes(lifecycle: Lifecycle) -> list[IndexModel]:
    """Give the indexes that the views of a collection need."""
    needed = [
        IndexModel(list(BY_STATUS)),
        IndexModel(list(BY_FAILURE), partialFilterExpression={STATUS: lifecycle.failed_word}),
        IndexModel(list(_BY_LEASE), partialFilterExpression={LEASE_TOKEN: HELD}),
        IndexModel(list(_BY_CLAIM), partialFilterExpression={CLAIM_TOKEN: HELD}),
    ]
    flag = flag_of(lifecycle)
    if flag is not None:
        needed += [IndexModel(list(_by_flag(flag))), IndexModel([(flag, 1), (LAST_FAILED_AT, 1)])]
    return needed


def flag_of(lifecycle: Lifecycle) -> str | None:
    """Give the name of the flag, or say that MongoDB cannot look for it."""
    flag = lifecycle.flag
    if flag is not None and not is_plain(flag):
        raise ConfigurationError(
            f"flag={flag!r} of {lifecycle.collection!r} is not accepted: MongoDB has no index on a "
            "field whose name holds a dot or begins with $; use another name"
        )
    return flag


def is_without_index(error: OperationFailure) -> bool:
    """Say whether a look failed because its index is not there, or is there twice.

    Then it is repeated, and the server finds a way of its own.
    """
    return error.code in {2, 27}  # BadValue, IndexNotFound


def looks(rule: SweepRule, view: View, now: datetime) -> Sequence[Look]:
    """Give the looks that find a view, what is oldest first."""
    match view:
        case View.FAILED:
            return _failed(rule.lifecycle)
        case View.OUTDATED | View.PERMANENT:
            return _permanent(rule, view)
        case View.UNMOVED:
            pending, index = waiting(rule.lifecycle)
            cutoff, ahead = now - rule.stuck_after, now + FARTHEST_AHEAD
            return _unless(LAST_ATTEMPT_TIME, pending, index, after=cutoff, until=ahead)
        case View.LEASE_OVER:
            leased = {LEASE_TOKEN: HELD, **waiting(rule.lifecycle)[0]}
            farthest = now + _longest_lease(rule) + FARTHEST_AHEAD
            return _unless(LEASE_UNTIL, leased, _BY_LEASE, after=now, until=farthest)
        case View.CLAIM_OVER:
            claimed = {CLAIM_TOKEN: HELD}
            farthest = now + FARTHEST_CLAIM
            return _unless(CLAIM_UNTIL, claimed, _BY_CLAIM, after=now, until=farthest)


def is_in(rule: SweepRule, view: View, document: Mapping[str, Any], now: datetime) -> bool:
    """Say whether a document is in a view."""
    state = rule.lifecycle.state(document)
    match view:
        case View.FAILED | View.OUTDATED | View.PERMANENT:
            return state is State.FAILED and view_of_failed(document, rule) is view
        case View.UNMOVED:
            began = past(document.get(LAST_ATTEMPT_TIME), now)
            return state is State.PENDING and (began is None or began + rule.stuck_after <= now)
        case View.LEASE_OVER:
            held = document.get(LEASE_TOKEN) is not None
            return state is State.PENDING and held and not _lease_runs(rule, document, now)
        case View.CLAIM_OVER:
            until = moment(document.get(CLAIM_UNTIL))
            runs = until is not None and now < until <= now + FARTHEST_CLAIM
            held = document.get(CLAIM_TOKEN) is not None
            return state in {State.PENDING, State.FAILED} and held and not runs


def leased(rule: SweepRule, now: datetime) -> Look:
    """Look for what may be pending with a lease that runs."""
    query = {LEASE_TOKEN: HELD, **waiting(rule.lifecycle)[0]}
    return Look({**query, LEASE_UNTIL: {"$not": {"$lte": milliseconds(now)}}}, _BY_LEASE)


def has_lease(rule: SweepRule, document: Mapping[str, Any], now: datetime) -> bool:
    """Say whether a document is pending with a lease that runs."""
    held = document.get(LEASE_TOKEN) is not None
    pending = rule.lifecycle.state(document) is State.PENDING
    return pending and held and _lease_runs(rule, document, now)


def _lease_runs(rule: SweepRule, document: Mapping[str, Any], now: datetime) -> bool:
    until = past(document.get(LEASE_UNTIL), now + _longest_lease(rule))
    return until is not None and until > now


def _longest_lease(rule: SweepRule) -> timedelta:
    return max(FARTHEST_CLAIM, rule.lifecycle.lease or timedelta())


def _unless(
    field: str, others: dict[str, Any], index: Keys, *, after: datetime, until: datetime
) -> Sequence[Look]:
    """Look for what has no date in this field between two others: two parts of an index.

    Asked for in one query, MongoDB may read what is between them too.
    """
    farther = Look({**others, field: {"$gt": milliseconds(until)}}, index)
    return farther, Look({**others, field: {"$not": {"$gt": milliseconds(after)}}}, index)


def _failed(lifecycle: Lifecycle) -> Sequence[Look]:
    nothing = {"$eq": None, "$not": {"$type": "array"}}  # a list that holds null is equal to null
    failed = {STATUS: lifecycle.failed_word, _RULE: None, PERMANENT_FAILURE: nothing}
    flag = flag_of(lifecycle)
    if flag is None:
        return (Look(failed, BY_FAILURE),)
    dated = {**_no_end(lifecycle), LAST_FAILED_AT: {"$ne": None}}
    return (Look({flag: {"$ne": True}, "$or": [failed, dated]}, None),)


def _permanent(rule: SweepRule, view: View) -> Sequence[Look]:
    failed: dict[str, Any] = {STATUS: rule.lifecycle.failed_word}
    flag = flag_of(rule.lifecycle)
    if flag is not None:
        failed[flag] = {"$ne": True}
    current = [rule.version] if rule.version else ["", None]
    outdated = {_RULE: {"$in": list(PROGRAMMING)}, _VERSION: {"$nin": current}, **_WELL_FORMED}
    if view is View.OUTDATED:
        return () if rule.version is None else (Look({**failed, **outdated}, BY_FAILURE),)
    there = {"$or": [{PERMANENT_FAILURE: {"$ne": None}}, {PERMANENT_FAILURE: {"$type": "array"}}]}
    others = {} if rule.version is None else {"$nor": [outdated]}
    return (Look({**failed, **there, **others}, BY_STATUS),)


def waiting(lifecycle: Lifecycle) -> tuple[dict[str, Any], Keys]:
    """Say how to find what is pending, and by which index."""
    flag = flag_of(lifecycle)
    if flag is None:
        return {STATUS: {"$in": list(lifecycle.pending_words)}}, BY_STATUS
    return {flag: {"$ne": True}, **_no_end(lifecycle)}, _by_flag(flag)


def _no_end(lifecycle: Lifecycle) -> dict[str, Any]:
    return {STATUS: {"$nin": [lifecycle.failed_word, lifecycle.given_up_word]}}


def _by_flag(flag: str) -> Keys:
    return (flag, 1), *BY_STATUS
