"""Count what is stuck, as `core.stuck.is_stuck` has it, by one statement over the views."""

# ruff: noqa: S608 (names are quoted in the parts of it)

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from headway.adapters.postgres.views import (
    ATTEMPTED,
    TABLE,
    condition_of,
    given_up_id,
    in_state,
    is_over,
    question,
    text_of,
    time_of,
)
from headway.core.document import (
    CLAIM_TOKEN,
    CLAIM_UNTIL,
    FARTHEST_AHEAD,
    LEASE_TOKEN,
    LEASE_UNTIL,
)
from headway.core.lifecycle import State
from headway.core.sweep import SweepRule
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
        *((View.UNMOVED, f"{within} and {free}") for within in unmoved.ranges),
        (View.LEASE_OVER, over),
        (View.CLAIM_OVER, broken_off),
    ]
    known = (
        f"coalesce(case when {ATTEMPTED} > '-infinity' and {ATTEMPTED} <= $2 then {ATTEMPTED} end, "
        f"case when {created} <= $2 then {created} end) as known"
    )
    stuck = " union all ".join(
        f"select {known} from {TABLE} where {condition_of(lifecycle, view)} and {which}"
        for view, which in parts
    )
    given_up = f"select count(*) from {TABLE} where {given_up_id(lifecycle)} is not null"
    statement = f"select count(*), min(known), ({given_up}) from ({stuck}) as stuck"
    lease, claim = (question(rule, view, now) for view in (View.LEASE_OVER, View.CLAIM_OVER))
    young_since = now - rule.grace
    return statement, (
        unmoved.old, now + FARTHEST_AHEAD, young_since, now, lease.farthest, claim.farthest
    )  # fmt: skip


def read_tally(row: Sequence[Any]) -> Tally:
    """Read what the statement gives."""
    stuck, oldest, given_up = row
    return Tally(stuck=stuck, given_up=given_up, oldest=oldest)


def _young(created: str) -> str:
    """Say of a document that it was never attempted, and made only just now."""
    return f"""(
        ({ATTEMPTED} = '-infinity' or {ATTEMPTED} > $2)
        and coalesce({created} > $3 and {created} <= $2, false)
        and not case when jsonb_typeof(body -> 'attemptCount') = 'number'
            then (body ->> 'attemptCount')::numeric > 0 else false end
    )"""
