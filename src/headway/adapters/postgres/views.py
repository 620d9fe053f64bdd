"""The views of a sweeper as SQL: what is in them, and the indexes by which they are read.

Each view has an index of its own, which holds what may be in it and nothing else, in the order of
the last attempt. PostgreSQL uses such an index where a statement repeats its condition word for
word, so all of it is written here. Where another index would do as well, by the words, the keys are
written differently: then it would not be in order.
"""

# ruff: noqa: S608 (names are quoted here)

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

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
)
from headway.core.lifecycle import Lifecycle, State
from headway.core.sweep import SweepRule
from headway.ports.candidates import View

TABLE = "headway_documents"
_NEVER = "'-infinity'::timestamptz"


def quoted(text: str) -> str:
    """Write a text as a literal.

    >>> quoted("it's")
    "'it''s'"
    """
    doubled = text.replace("'", "''")
    return f"'{doubled}'" if "\\" not in text else "E'{}'".format(doubled.replace("\\", "\\\\"))


def text_of(field: str) -> str:
    """Read a field as text; null: it is missing, or null."""
    return f"(body ->> {quoted(field)})"


def time_of(field: str) -> str:
    """Read a field as a time; null: it is none."""
    return f"headway_instant({text_of(field)})"


_RULE, _VERSION = (
    f"(body -> {quoted(PERMANENT_FAILURE)} ->> {quoted(name)})" for name in ("rule", "version")
)
_BUG = "v"
"""Precedes the version in the key of what failed permanently by a programming error; the keys of
other permanent failures are empty."""
_OF_A_VERSION = (
    f"coalesce(jsonb_typeof(body -> {quoted(PERMANENT_FAILURE)} -> 'version'), 'null') "
    "in ('string', 'null')"
)
_BY_VERSION = (
    f"""(case when {_RULE} in ({", ".join(map(quoted, PROGRAMMING))}) and {_OF_A_VERSION} """
    f"""then {quoted(_BUG)} || coalesce({_VERSION}, '') else '' end collate "C")"""
)

ATTEMPTED = f"coalesce({time_of(LAST_ATTEMPT_TIME)}, {_NEVER})"
"""By which views are ordered: what was never attempted, or nobody knows when, is the oldest."""


def has_flag(flag: str) -> str:
    """Ask whether a field is true; where there is no such field, it is not."""
    return f"coalesce(body -> {quoted(flag)} = 'true'::jsonb, false)"


def in_state(lifecycle: Lifecycle, state: State) -> str:
    """Say of an open state, or of what was given up, what `Lifecycle.state` says."""
    status, flag = text_of(STATUS), lifecycle.flag
    failed, given_up = quoted(lifecycle.failed_word), quoted(lifecycle.given_up_word)
    if flag is None:
        pending = ", ".join(quoted(word) for word in lifecycle.pending_words if word is not None)
        return {
            State.PENDING: f"({status} is null or {status} in ({pending}))",
            State.FAILED: f"{status} = {failed}",
            State.GIVEN_UP: f"{status} = {given_up}",
        }[state]
    done = has_flag(flag)
    failed_last = f"coalesce({time_of(LAST_FAILED_AT)} >= {ATTEMPTED}, false)"
    ended = f"coalesce({status} in ({failed}, {given_up}), false)"
    return {
        State.PENDING: f"not {done} and not {ended} and not {failed_last}",
        State.FAILED: f"not {done} and ({status} = {failed} or not {ended} and {failed_last})",
        State.GIVEN_UP: f"not {done} and {status} = {given_up}",
    }[state]


def condition_of(lifecycle: Lifecycle, view: View) -> str:
    """Say what may be in a view: the condition of its index."""
    pending, failed = (in_state(lifecycle, state) for state in (State.PENDING, State.FAILED))
    by_word = f"{text_of(STATUS)} is not distinct from {quoted(lifecycle.failed_word)}"
    says_so = f"{by_word} and {text_of(PERMANENT_FAILURE)} is not null"
    permanent = f"({failed}) and {says_so}"
    condition = {
        View.FAILED: f"({failed}) and not ({says_so})",
        View.OUTDATED: permanent,
        View.PERMANENT: permanent,
        View.UNMOVED: pending,
        View.LEASE_OVER: f"{text_of(LEASE_TOKEN)} is not null and {pending}",
        View.CLAIM_OVER: f"{text_of(CLAIM_TOKEN)} is not null and ({pending} or {failed})",
    }[view]
    return f"collection = {quoted(lifecycle.collection)} and {condition}"


def key_of(view: View) -> str:
    """Say by what a view is ordered."""
    if view is View.LEASE_OVER:
        return f"case when {text_of(LEASE_TOKEN)} is not null then {ATTEMPTED} end"
    if view is View.CLAIM_OVER:
        return f"case when {text_of(CLAIM_TOKEN)} is not null then {ATTEMPTED} end"
    if view in {View.OUTDATED, View.PERMANENT}:
        return _BY_VERSION
    return ATTEMPTED


def given_up_id(lifecycle: Lifecycle) -> str:
    """Give the id of what was given up, null of anything else."""
    condition = in_state(lifecycle, State.GIVEN_UP)
    return f"case when collection = {quoted(lifecycle.collection)} and {condition} then id end"


@dataclass(frozen=True, slots=True)
class Question:
    """What is in a view now, put so that its index answers."""

    condition: str
    key: str
    ranges: tuple[str, ...]
    """What holds besides, from old to new; no document is in two of them."""
    old: datetime
    """$1: up to then a time is over."""
    farthest: datetime
    """$2: beyond this, it is none."""

    def page(self, within: str, *, newest_first: bool, follows: bool) -> str:
        """Give the statement for a page of so many ($3), if it follows another: after $4, $5."""
        order, than = ("desc", "<") if newest_first else ("asc", ">")
        after = f" and ({self.key}, id) {than} ($4, $5)" if follows else ""
        return (
            f"select {self.key}, id, body::text from {TABLE} "
            f"where {self.condition} and {within}{after} "
            f"order by {self.key} {order}, id {order} limit $3"
        )


def question(rule: SweepRule, view: View, now: datetime) -> Question:
    """Say what is in a view now."""
    condition, key = condition_of(rule.lifecycle, view), key_of(view)
    match view:
        case View.FAILED:
            return Question(condition, key, (_USED,), now, now)
        case View.OUTDATED | View.PERMANENT:
            parts = tuple(f"{part} and {_USED}" for part in permanent_parts(rule, view))
            return Question(condition, key, parts, now, now)
        case View.UNMOVED:
            ranges = (f"{key} <= $1 and {_USED}", f"{key} > $2 and {_USED}")
            old, farthest = now - rule.stuck_after, now + FARTHEST_AHEAD
            return Question(condition, key, ranges, old, farthest)
        case View.LEASE_OVER:
            within, farthest = is_over(LEASE_UNTIL), _farthest_lease(rule, now)
        case View.CLAIM_OVER:
            within, farthest = is_over(CLAIM_UNTIL), now + FARTHEST_CLAIM
    return Question(condition, key, (within,), now, farthest)


def permanent_parts(rule: SweepRule, view: View) -> tuple[str, ...]:
    """Say which parts of what failed permanently are in a view, from one version to the next."""
    if rule.version is None:
        return ("true",) if view is View.PERMANENT else ()
    current = quoted(f"{_BUG}{rule.version}")
    if view is View.PERMANENT:
        return f"{_BY_VERSION} = ''", f"{_BY_VERSION} = {current}"
    return (
        f"{_BY_VERSION} > '' and {_BY_VERSION} < {current}",
        f"{_BY_VERSION} > {current}",
    )


def leased(rule: SweepRule, now: datetime) -> tuple[str, datetime]:
    """Ask how many leases run between now ($1) and a farthest time ($2), up to a number ($3).

    In the order of the index that holds leased documents alone, so that no other is read.
    """
    condition, key = (
        condition_of(rule.lifecycle, View.LEASE_OVER),
        key_of(View.LEASE_OVER),
    )
    statement = (
        f"select count(*) from (select 1 from {TABLE} "
        f"where {condition} and not ({is_over(LEASE_UNTIL)}) order by {key}, id limit $3) running"
    )
    return statement, _farthest_lease(rule, now)


def _farthest_lease(rule: SweepRule, now: datetime) -> datetime:
    return now + max(FARTHEST_CLAIM, rule.lifecycle.lease or timedelta()) + FARTHEST_AHEAD


def is_over(until: str, old: str = "$1", farthest: str = "$2") -> str:
    """Say of a lease or a claim that it has ended, or that nobody knows when it will."""
    time = time_of(until)
    return f"not coalesce({time} > {old} and {time} <= {farthest}, false)"


_USED = "$1::timestamptz is not null and $2::timestamptz is not null"
"""Every statement has the same parameters, whether it needs them or not."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index, named after what it is, so that another lifecycle gets another one."""

    columns: str
    condition: str

    @property
    def name(self) -> str:
        what = f"{self.columns} {self.condition}"
        return f"headway_view_{sha256(what.encode()).hexdigest()[:24]}"

    @property
    def made(self) -> str:
        return (
            f"create index concurrently if not exists {self.name} on {TABLE} ({self.columns}) "
            f"where {self.condition}"
        )

    @property
    def dropped(self) -> str:
        return f"drop index concurrently if exists {self.name}"


def indexes(lifecycle: Lifecycle) -> list[Index]:
    """The indexes that the documents of a lifecycle need."""
    given_up = given_up_id(lifecycle)
    of_views = (Index(f"({key_of(view)}), id", condition_of(lifecycle, view)) for view in View)
    return [
        *dict.fromkeys(of_views),  # some have one together
        Index(f"({given_up})", f"{given_up} is not null"),
    ]
