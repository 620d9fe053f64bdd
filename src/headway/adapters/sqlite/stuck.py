"""How indexes know which documents may be stuck: expressions over their JSON.

Every lifecycle has three partial indexes, in which only open documents are. Their keys are texts
that sort as the documents do: a time of fixed width, a space, and the id; where there is no time,
a dash, which sorts first. So one comparison is both the limit of a view and the place where the
last page ended.

Anybody may write into the table. A body that is not a JSON object is in the first index as what
nobody can read, and in no view. Nothing that a document holds can make an expression fail: then the
row could not even be stored.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from headway.core.catalogue import PROGRAMMING
from headway.core.document import (
    ATTEMPT_COUNT,
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

_A_DATE = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*"
"""Other texts are times for SQLite too, such as 'now', which no index can hold."""
_NO_TIME = "-"
AFTER_ID = "!"
"""Sorts behind the space: with it a time is behind all keys of that time."""
_TIME_WIDTH = len("2000-01-01 00:00:00.000")
UNDATED = f"{_NO_TIME}{AFTER_ID}"
UNREADABLE = "unreadable"
"""The stage of a row that holds no JSON object."""
_PERMANENT = "permanent"
"""The stage of what failed permanently; after a programming error a space and the version follow,
so that a version is found by one comparison."""
_BY_A_BUG = f"{_PERMANENT} "
_BEFORE_PERMANENT, _BEHIND_PERMANENT = _PERMANENT[:-1], f"{_PERMANENT}!"


@dataclass(frozen=True, slots=True)
class Range:
    """A part of an index, by its keys."""

    above: str
    below: str

    def after(self, key: str, *, newest_first: bool) -> "Range":
        """Give what is left of it when this key was given."""
        return Range(self.above, key) if newest_first else Range(key, self.below)


_FIRST, _LAST = "", "~"
EVERYTHING = Range(_FIRST, _LAST)


class Expressions:
    """What is asked of the documents of one lifecycle, as SQL.

    Names of collections and fields stand in it as literals: only so SQLite sees that a question is
    about what a partial index holds. The collection is a part of each expression, and never asked
    for by itself: SQLite would rather read a whole collection in the order of its ids.
    """

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._collection = literal(lifecycle.collection)
        state = _stage(lifecycle, f"'{State.FAILED}'")
        stage = _stage(lifecycle, _failed_stage())
        leased = f"{state} = '{State.PENDING}'"
        claimed = f"{state} in ('{State.PENDING}', '{State.FAILED}')"
        self.stage = self._of_ours(f"else {stage}", unreadable=f"'{UNREADABLE}'")
        """pending, failed, permanent, failed_max_retries or unreadable; null: processed, or none of
        ours."""
        self.state = self._of_ours(f"else {state}", unreadable=f"'{UNREADABLE}'")
        """The same, without a stage of its own for what failed permanently."""
        self.attempted = self._of_ours(f"else {_key(_time(LAST_ATTEMPT_TIME))}")
        self.lease = self._of_ours(_held(LEASE_TOKEN, LEASE_UNTIL, leased))
        self.claim = self._of_ours(_held(CLAIM_TOKEN, CLAIM_UNTIL, claimed))
        self.created = self._of_ours(f"else {_time(lifecycle.created)}")
        self.word = self._of_ours(f"else {_value(STATUS)}")
        self.flag = self._of_ours(f"else {_is_true(lifecycle.flag)}" if lifecycle.flag else "")
        self.is_unreadable = self._of_ours("else false", unreadable="true")
        self.failed = self._of_ours(f"else {_value(LAST_FAILED_AT)}")
        self.began = self._of_ours(f"else {_value(LAST_ATTEMPT_TIME)}")
        is_number = f"json_type(body, {_path(ATTEMPT_COUNT)}) in ('integer', 'real')"
        self.attempts = self._of_ours(f"when {is_number} then {_value(ATTEMPT_COUNT)}")

    def _of_ours(self, then: str, unreadable: str = "null") -> str:
        """Ask something only of what is in the collection, and can be asked. In this order."""
        return (
            f"case when collection <> {self._collection} then null "
            f"when typeof(body) <> 'text' then {unreadable} "
            f"when not json_valid(body) then {unreadable} "
            f"when json_type(body) <> 'object' then {unreadable} {then} end"
        )

    def indexes(self) -> Mapping[str, str]:
        """Give the statements that make the indexes, by name: each is named by what it holds."""
        return dict(
            (
                _index(f"{self.stage}, {self.attempted}", self.stage),
                _index(self.lease, self.lease),
                _index(self.claim, self.claim),
            )
        )


def _index(columns: str, key: str) -> tuple[str, str]:
    what = f"headway_documents ({columns}) where {key} is not null"
    name = f"headway_stuck_{sha256(what.encode()).hexdigest()[:16]}"
    return name, f"create index if not exists {name} on {what}"


@dataclass(frozen=True, slots=True)
class Question:
    """Which rows are in a view, and by what they are ordered."""

    which: str
    key: str
    ranges: Sequence[Range]
    """In the order of age, the oldest first."""

    def page(self, *, newest_first: bool) -> str:
        """Give the statement for one page of a range."""
        order = "desc" if newest_first else "asc"
        return (
            f"select {self.key}, id, body from headway_documents "  # noqa: S608 (literals are quoted)
            f"where {self.which} and {self.key} > ? and {self.key} < ? "
            f"order by {self.key} {order} limit ?"
        )


def questions(
    connection: sqlite3.Connection, rule: SweepRule, view: View, now: datetime
) -> list[Question]:
    """Put a view into words that an index understands."""
    sql = Expressions(rule.lifecycle)
    match view:
        case View.FAILED:
            stages = [State.FAILED.value]
        case View.OUTDATED | View.PERMANENT:
            found = _permanent_stages(connection, sql.stage)
            stages = [each for each in found if _view_of(each, rule) is view]
        case View.UNMOVED:
            ranges = outside(now - rule.stuck_after, now + FARTHEST_AHEAD)
            return [Question(f"{sql.stage} = '{State.PENDING}'", sql.attempted, ranges)]
        case View.LEASE_OVER:
            return [Question("true", sql.lease, outside(now, _farthest_lease(rule, now)))]
        case View.CLAIM_OVER:
            return [Question("true", sql.claim, outside(now, now + FARTHEST_CLAIM))]
    return [
        Question(f"{sql.stage} = {literal(stage)}", sql.attempted, [EVERYTHING]) for stage in stages
    ]


def _permanent_stages(connection: sqlite3.Connection, stage: str) -> list[str]:
    """Name the stages of what failed permanently: from one to the next, for there are few."""
    after = f"select min({stage}) from headway_documents where {stage} > ? and {stage} < ?"  # noqa: S608 (literals are quoted)
    found: list[Any] = [_BEFORE_PERMANENT]
    while found[-1] is not None:
        found += connection.execute(after, (found[-1], _BEHIND_PERMANENT)).fetchone()
    return found[1:-1]


def _view_of(stage: str, rule: SweepRule) -> View:
    """Say which view holds what failed permanently with this stage."""
    is_of_ours = rule.version is None or stage == f"{_BY_A_BUG}{rule.version}"
    return View.PERMANENT if is_of_ours or stage == _PERMANENT else View.OUTDATED


def leased(rule: SweepRule, now: datetime) -> tuple[str, Range]:
    """Ask how many leases run, up to a number, in a range of the index of leases."""
    key = Expressions(rule.lifecycle).lease
    farthest = _farthest_lease(rule, now)
    runs = Range(f"{time_text(now)}{AFTER_ID}", f"{time_text(farthest)}{AFTER_ID}")
    return (
        f"select count(*) from (select 1 from headway_documents "  # noqa: S608 (literals are quoted)
        f"where {key} > ? and {key} < ? limit ?)"
    ), runs


def _farthest_lease(rule: SweepRule, now: datetime) -> datetime:
    return now + max(FARTHEST_CLAIM, rule.lifecycle.lease or timedelta()) + FARTHEST_AHEAD


def alike(lifecycle: Lifecycle) -> str:
    """Ask how many rows have the same state, and for what decides it.

    Times decide nothing where a word does, and where nothing ever failed: one group, then.
    """
    sql = Expressions(lifecycle)
    ended = ", ".join(literal(each) for each in (lifecycle.failed_word, lifecycle.given_up_word))
    is_open = f"coalesce(not {sql.flag}, true) and coalesce({sql.word} not in ({ended}), true)"
    by_times = is_open if lifecycle.flag else "false"
    return (
        f"select {sql.is_unreadable}, {sql.word}, {sql.flag}, "  # noqa: S608 (literals are quoted)
        f"case when {by_times} then {sql.failed} end, "
        f"case when {by_times} and {sql.failed} is not null then {sql.began} end, count(*) "
        f"from headway_documents where collection = {literal(lifecycle.collection)} "
        "group by 1, 2, 3, 4, 5"
    )


def unreadable(lifecycle: Lifecycle) -> str:
    """Ask how many rows hold no JSON object, and for the id of the first."""
    stage = Expressions(lifecycle).stage
    return f"select count(*), min(id) from headway_documents where {stage} = '{UNREADABLE}'"  # noqa: S608 (literals are quoted)


def outside(limit: datetime, farthest: datetime) -> Sequence[Range]:
    """Give the keys of times up to a limit, and of those that are no times, or too far ahead."""
    return (
        Range(f"{time_text(farthest)}{AFTER_ID}", _LAST),
        Range(_FIRST, f"{time_text(limit)}{AFTER_ID}"),
    )


def time_text(when: datetime) -> str:
    """Write a time as keys do."""
    return when.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")


def time_of(text: str) -> datetime | None:
    """Read the time of a key; None: it is a time for SQLite only, such as the 30th of February."""
    try:
        return datetime.fromisoformat(text[:_TIME_WIDTH]).replace(tzinfo=UTC)
    except ValueError:
        return None


def _failed_stage() -> str:
    rule, version = (f"json_extract(body, {_path(PERMANENT_FAILURE, name)})" for name in _FAILURE)
    by_a_bug = ", ".join(map(literal, PROGRAMMING))
    of_a_version = f"coalesce(json_type(body, {_path(PERMANENT_FAILURE, 'version')}), 'null')"
    return (
        f"case when {_value(PERMANENT_FAILURE)} is null then '{State.FAILED}' "
        f"when {rule} in ({by_a_bug}) and {of_a_version} in ('text', 'null') "
        f"then '{_BY_A_BUG}' || coalesce({version}, '') else '{_PERMANENT}' end"
    )


_FAILURE = ("rule", "version")


def _stage(lifecycle: Lifecycle, of_failed: str) -> str:
    failed = f"when '{lifecycle.failed_word}' then {of_failed}"
    given_up = f"when '{lifecycle.given_up_word}' then '{State.GIVEN_UP}'"
    if lifecycle.flag is None:
        words = [word for word in lifecycle.pending_words if word is not None]
        pending = " ".join(f"when {literal(word)} then '{State.PENDING}'" for word in words)
        status = f"coalesce({_value(STATUS)}, {literal(words[0])})"
        return f"case {status} {pending} {failed} {given_up} end"
    failed_last = f"{_time(LAST_FAILED_AT)} >= coalesce({_time(LAST_ATTEMPT_TIME)}, '')"
    by_time = f"case when {failed_last} then '{State.FAILED}' else '{State.PENDING}' end"
    by_word = f"case {_value(STATUS)} {failed} {given_up} else {by_time} end"
    return f"case when {_is_true(lifecycle.flag)} then null else {by_word} end"


def _held(token: str, until: str, is_open: str) -> str:
    """Give the key of an open document that bears a token."""
    return f"when {_value(token)} is null then null when {is_open} then {_key(_time(until))}"


def _key(time: str) -> str:
    return f"coalesce({time}, '{_NO_TIME}') || ' ' || id"


def _time(field: str) -> str:
    value = _value(field)
    return f"case when {value} glob '{_A_DATE}' then strftime('%Y-%m-%d %H:%M:%f', {value}) end"


def _value(field: str) -> str:
    return f"json_extract(body, {_path(field)})" if _is_nameable(field) else "null"


def _is_true(field: str) -> str:
    return f"json_type(body, {_path(field)}) = 'true'" if _is_nameable(field) else "false"


def _is_nameable(field: str) -> bool:
    """Others cannot be named here: the views then hold more, and `judge` tells it apart."""
    return '"' not in field and "\\" not in field


def _path(*fields: str) -> str:
    return literal("$" + "".join(f'."{field}"' for field in fields))


def literal(text: str) -> str:
    """Write a text as SQL does."""
    return "'" + text.replace("'", "''") + "'"
