"""Count what is stuck, as `core.stuck.is_stuck` has it, by one statement over the views."""

# ruff: noqa: S608 (names are quoted in the parts of it)

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from headway.adapters.postgres.views import (
    ATTEMPTED,
    TABLE,
    condition_of,
    given_up_id,
    has_flag,
    in_state,
    is_over,
    key_of,
    permanent_parts,
    question,
    quoted,
    text_of,
    time_of,
)
from headway.core.document import (
    CLAIM_TOKEN,
    CLAIM_UNTIL,
    FARTHEST_AHEAD,
    LAST_ATTEMPT_TIME,
    LAST_FAILED_AT,
    LEASE_TOKEN,
    LEASE_UNTIL,
    STATUS,
)
from headway.core.lifecycle import Lifecycle, State
from headway.core.sweep import SweepRule
from headway.core.unreadable import stand_in
from headway.core.writes import Document
from headway.ports.candidates import Tally, View

_UNLEASED, _UNCLAIMED = f"{text_of(LEASE_TOKEN)} is null", f"{text_of(CLAIM_TOKEN)} is null"


def counting(rule: SweepRule, now: datetime) -> tuple[str, Sequence[datetime]]:
    """Give the statement that counts a collection, and its values.

    $1: up to then an attempt is too long ago; $2: a time beyond it is none; $3: what was made since
    is young; $4: now; $5 and $6: a lease and a claim that run, end before.
    """
    lifecycle = rule.lifecycle
    created = time_of(lifecycle.created)
    unmoved = question(rule, View.UNMOVED, now)
    free = f"not {_young(created)} and {_UNLEASED} and {_UNCLAIMED}"
    over = f"{is_over(LEASE_UNTIL, '$4', '$5')} and {_UNCLAIMED}"
    broken_off = f"{is_over(CLAIM_UNTIL, '$4', '$6')} and {in_state(lifecycle, State.PENDING)}"
    # Each document is in one of these: who holds it decides, before when it last moved.
    parts = [
        (View.FAILED, "true"),
        *((View.OUTDATED, part) for part in permanent_parts(rule, View.OUTDATED)),
        *((View.UNMOVED, f"{within} and {free}") for within in unmoved.ranges),
        (View.LEASE_OVER, over),
        (View.CLAIM_OVER, broken_off),
    ]
    known = (
        f"coalesce(case when {ATTEMPTED} > '-infinity' and {ATTEMPTED} <= $2 then {ATTEMPTED} end, "
        f"case when {created} <= $2 then {created} end) as known"
    )
    # In the order of its index, so that PostgreSQL reads that one and no larger one.
    stuck = " union all ".join(
        f"(select {known} from {TABLE} where {condition_of(lifecycle, view)} and {which} "
        f"order by {key_of(view)})"
        for view, which in parts
    )
    given_up = f"select count(*) from {TABLE} where {given_up_id(lifecycle)} is not null"
    permanent = " union all ".join(
        f"(select 1 from {TABLE} where {condition_of(lifecycle, View.PERMANENT)} and {part} "
        f"order by {key_of(View.PERMANENT)})"
        for part in permanent_parts(rule, View.PERMANENT)
    )
    statement = (
        f"select count(*), min(known), ({given_up}), "
        f"(select count(*) from ({permanent}) as permanent) from ({stuck}) as stuck"
    )
    lease, claim = (question(rule, view, now) for view in (View.LEASE_OVER, View.CLAIM_OVER))
    young_since = now - rule.grace
    return statement, (
        unmoved.old, now + FARTHEST_AHEAD, young_since, now, lease.farthest, claim.farthest
    )  # fmt: skip


def alike(lifecycle: Lifecycle) -> str:
    """Give the statement that counts what has the same state together. $1: the collection.

    Times decide nothing where a word does, and where nothing ever failed: one group, then.
    """
    status, failed, began = (text_of(each) for each in (STATUS, LAST_FAILED_AT, LAST_ATTEMPT_TIME))
    ended = ", ".join(quoted(each) for each in (lifecycle.failed_word, lifecycle.given_up_word))
    flag = has_flag(lifecycle.flag) if lifecycle.flag is not None else "true"
    open_ones = f"not {flag} and coalesce({status} not in ({ended}), true)"
    return f"""
        select jsonb_typeof(body) = 'object', {status}, {flag},
            case when {open_ones} then {failed} end,
            case when {open_ones} and {failed} is not null then {began} end,
            count(*)
        from {TABLE} where collection = $1 group by 1, 2, 3, 4, 5
    """


def read_alike(lifecycle: Lifecycle) -> Callable[[Sequence[Any]], tuple[Document, int]]:
    """Give what reads a row of that statement."""

    def read(row: Sequence[Any]) -> tuple[Document, int]:
        is_document, status, flag, failed, began, count = row
        if not is_document:
            return stand_in("", ""), count
        document = {STATUS: status, LAST_FAILED_AT: failed, LAST_ATTEMPT_TIME: began}
        return (document if lifecycle.flag is None else {**document, lifecycle.flag: flag}), count

    return read


def read_tally(row: Sequence[Any]) -> Tally:
    """Read what the statement gives."""
    stuck, oldest, given_up, permanent = row
    return Tally(stuck=stuck, given_up=given_up, permanent=permanent, oldest=oldest)


def _young(created: str) -> str:
    """Say of a document that it was never attempted, and made only just now."""
    return f"""(
        ({ATTEMPTED} = '-infinity' or {ATTEMPTED} > $2)
        and coalesce({created} > $3 and {created} <= $2, false)
        and not case when jsonb_typeof(body -> 'attemptCount') = 'number'
            then (body ->> 'attemptCount')::numeric > 0 else false end
    )"""
