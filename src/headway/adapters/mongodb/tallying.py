"""Count what is stuck: on the server where types are as usual, and here where they are not."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo.errors import OperationFailure

from headway.adapters.mongodb.connecting import Collection
from headway.adapters.mongodb.values import Raw, milliseconds, view
from headway.adapters.mongodb.views import (
    BY_STATUS,
    HELD,
    Look,
    flag_of,
    is_in,
    is_without_index,
    looks,
    waiting,
)
from headway.core.document import (
    ATTEMPT_COUNT,
    CLAIM_TOKEN,
    CLAIM_UNTIL,
    FARTHEST_AHEAD,
    LAST_ATTEMPT_TIME,
    LAST_FAILED_AT,
    LEASE_TOKEN,
    LEASE_UNTIL,
    PERMANENT_FAILURE,
    STATUS,
    past,
)
from headway.core.lifecycle import Lifecycle, State
from headway.core.stuck import is_stuck
from headway.core.sweep import SweepRule
from headway.core.writes import ID, Document
from headway.ports.candidates import Tally, View

_DATED = ("date", "null", "missing")
_SOMEBODY = "t"
"""Whose lease or claim it was makes no difference."""
_FREE = {"$not": HELD}
_ONCE: Mapping[View, Raw] = {
    View.FAILED: {},
    View.OUTDATED: {},
    View.UNMOVED: {LEASE_TOKEN: _FREE, CLAIM_TOKEN: _FREE},
    View.LEASE_OVER: {CLAIM_TOKEN: _FREE},
    View.CLAIM_OVER: {},
}
"""What is asked besides, so that each document is counted in one view: by who holds it, before when
it last moved."""
_HOLDS: Mapping[View, tuple[str, str]] = {
    View.LEASE_OVER: (LEASE_TOKEN, LEASE_UNTIL),
    View.CLAIM_OVER: (CLAIM_TOKEN, CLAIM_UNTIL),
}
_BEGAN, _FAILED = f"${LAST_ATTEMPT_TIME}", f"${LAST_FAILED_AT}"


async def tally(collection: Collection, rule: SweepRule, now: datetime) -> Tally:
    """Count a collection."""
    stuck, times = 0, list[datetime]()
    for each in _ONCE:
        for look in looks(rule, each, now):
            for row in await _rows(collection, look, _counting(rule, each, now)):
                count, oldest = _read(row, rule, each, now)
                stuck += count
                times += oldest
    return Tally(
        stuck=stuck,
        given_up=await _count(collection, [Look(_given_up(rule), BY_STATUS)]),
        permanent=await _count(collection, looks(rule, View.PERMANENT, now)),
        oldest=min(times, default=None),
    )


async def _count(collection: Collection, parts: Sequence[Look]) -> int:
    counted = [await _rows(collection, look, [{"$count": "count"}]) for look in parts]
    return sum(row["count"] for rows in counted for row in rows)


async def alike(collection: Collection, lifecycle: Lifecycle) -> list[tuple[Document, int]]:
    """Count what has the same state together; give what decides it, and the counts."""
    flag = flag_of(lifecycle)
    deciding: dict[str, Any] = {STATUS: f"${STATUS}"}
    if flag is not None:
        ended = [lifecycle.failed_word, lifecycle.given_up_word]
        is_done = {"$eq": [f"${flag}", True]}
        by_word = {"$or": [is_done, {"$in": [f"${STATUS}", ended]}]}
        deciding[flag] = is_done
        # Times decide nothing where a word does, and where nothing ever failed: one group, then.
        deciding[LAST_FAILED_AT] = {"$cond": [by_word, None, _FAILED]}
        never = {"$or": [by_word, {"$lte": [_FAILED, None]}]}
        deciding[LAST_ATTEMPT_TIME] = {"$cond": [never, None, _BEGAN]}
    look = Look({}, None if flag is not None else BY_STATUS)
    rows = await _rows(collection, look, [{"$group": {ID: deciding, "count": {"$sum": 1}}}])
    return [(view(row[ID]), row["count"]) for row in rows]


async def _rows(collection: Collection, look: Look, stages: Sequence[Raw]) -> list[Raw]:
    pipeline = [{"$match": look.query}, *stages]
    hint: dict[str, Any] = {"hint": dict(look.index)} if look.index else {}
    try:
        return await (await collection.aggregate(pipeline, **hint)).to_list()
    except OperationFailure as error:
        if not hint or not is_without_index(error):
            raise
    return await (await collection.aggregate(pipeline)).to_list()


def _given_up(rule: SweepRule) -> dict[str, Any]:
    flag = flag_of(rule.lifecycle)
    open_ones = {} if flag is None else {flag: {"$ne": True}}
    return {STATUS: rule.lifecycle.given_up_word, **open_ones}


def _counting(rule: SweepRule, which: View, now: datetime) -> Sequence[Raw]:
    """Count what has the usual types together; for the rest, give what it holds."""
    flag, created = rule.lifecycle.flag, _field(rule.lifecycle.created)
    ahead = milliseconds(now + FARTHEST_AHEAD)
    types: list[Any] = [
        _is(f"${STATUS}", "string", "null", "missing"),
        _is(_BEGAN, *_DATED),
        {"$or": [_happened(_BEGAN, ahead), _is(created, *_DATED)]},
    ]
    read = {
        "status": f"${STATUS}", "began": _BEGAN, "created": created, "failed": _FAILED,
        "attempts": f"${ATTEMPT_COUNT}", "permanent": f"${PERMANENT_FAILURE}",
    }  # fmt: skip
    stages: list[Raw] = [{"$match": _ONCE[which]}]
    if which in _HOLDS:
        until = f"${_HOLDS[which][1]}"
        types.append(_is(until, *_DATED))
        read["until"] = until
    if which is View.CLAIM_OVER:
        stages.append({"$match": waiting(rule.lifecycle)[0]})
    if which is View.UNMOVED:
        stages.append({"$match": {"$expr": {"$not": [_young(rule, created, now)]}}})
    if flag is not None:
        types += [_is(_FAILED, *_DATED), _is(f"${flag}", "bool", "null", "missing")]
        read["flag"] = f"${flag}"
        failed_last = {
            "$and": [
                _is(_FAILED, "date"),
                {"$or": [{"$not": [_is(_BEGAN, "date")]}, {"$gte": [_FAILED, _BEGAN]}]},
            ]
        }
        says = {"$eq": [f"${STATUS}", rule.lifecycle.failed_word]}
        failed = {"$or": [says, failed_last]}
        there = failed if which in {View.FAILED, View.OUTDATED} else {"$not": [failed]}
        stages.append({"$match": {"$expr": {"$or": [there, {"$not": [{"$and": types}]}]}}})
    made = {"$cond": [_happened(created, ahead), created, None]}
    group = {
        ID: {"$cond": [{"$and": types}, None, read]},
        "count": {"$sum": 1},
        "oldest": {"$min": {"$cond": [_happened(_BEGAN, ahead), _BEGAN, made]}},
    }
    return [*stages, {"$group": group}]


def _young(rule: SweepRule, created: Any, now: datetime) -> Mapping[str, Any]:
    """Ask for what was never attempted and made only just now: its event may be on its way."""
    ahead = milliseconds(now + FARTHEST_AHEAD)
    attempts = f"${ATTEMPT_COUNT}"
    conditions: list[Any] = [
        _is(_BEGAN, *_DATED),
        {"$not": [_happened(_BEGAN, ahead)]},
        _happened(created, ahead),
        {"$gt": [created, milliseconds(now - rule.grace)]},
        {"$not": [{"$and": [{"$isNumber": attempts}, {"$gt": [attempts, 0]}]}]},
    ]
    return {"$and": conditions}


def _read(row: Raw, rule: SweepRule, which: View, now: datetime) -> tuple[int, Sequence[datetime]]:
    if row[ID] is None:
        return row["count"], [row["oldest"]] if row["oldest"] else []
    held = view(row[ID])
    document = {
        ID: "",
        ATTEMPT_COUNT: held.get("attempts"),
        STATUS: held.get("status"),
        LAST_ATTEMPT_TIME: held.get("began"),
        LAST_FAILED_AT: held.get("failed"),
        PERMANENT_FAILURE: held.get("permanent"),
        rule.lifecycle.created: held.get("created"),
    }
    if rule.lifecycle.flag is not None:
        document[rule.lifecycle.flag] = held.get("flag")
    if which in _HOLDS:
        token, until = _HOLDS[which]
        document.update({token: _SOMEBODY, until: held.get("until")})
    if which is View.CLAIM_OVER and rule.lifecycle.state(document) is not State.PENDING:
        return 0, []  # what failed is counted there
    if not is_in(rule, which, document, now) or not is_stuck(document, rule, now):
        return 0, []
    began = past(document[LAST_ATTEMPT_TIME], now)
    known = began or past(document[rule.lifecycle.created], now)
    return row["count"], [known] if known else []


def _is(value: Any, *types: str) -> Mapping[str, Any]:
    return {"$in": [{"$type": value}, list(types)]}


def _happened(value: Any, ahead: datetime) -> Mapping[str, Any]:
    return {"$and": [_is(value, "date"), {"$lte": [value, ahead]}]}


def _field(name: str) -> Mapping[str, Any]:
    return {"$getField": {"field": {"$literal": name}, "input": "$$ROOT"}}
