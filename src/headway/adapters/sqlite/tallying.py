"""Count what is stuck, as `core.stuck.is_stuck` has it, by the indexes of the views.

What failed and what has not moved is counted in one index, without a look at any document. Few of
them are leased or claimed: those are found in the indexes for that, and counted apart.
"""

# ruff: noqa: S608 (statements are put together from parts of our own; names in them are quoted)

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from headway.adapters.sqlite.stuck import (
    AFTER_ID,
    UNDATED,
    Expressions,
    Question,
    Range,
    questions,
    time_of,
    time_text,
)
from headway.core.document import FARTHEST_AHEAD, LAST_ATTEMPT_TIME, LAST_FAILED_AT, STATUS
from headway.core.lifecycle import Lifecycle, State
from headway.core.sweep import SweepRule
from headway.core.unreadable import stand_in
from headway.core.writes import Document
from headway.ports.candidates import Tally, View

_LOOKED_AT = 100
"""Of the oldest times, until one is found that is a time for everybody."""
_LAST = "~"


def read_alike(lifecycle: Lifecycle) -> Callable[[Sequence[Any]], tuple[Document, int]]:
    """Give what reads a row of `stuck.alike`."""

    def read(row: Sequence[Any]) -> tuple[Document, int]:
        is_unreadable, status, flag, failed, began, count = row
        if is_unreadable:
            return stand_in("", ""), count
        document = {STATUS: status, LAST_FAILED_AT: failed, LAST_ATTEMPT_TIME: began}
        if lifecycle.flag is not None:
            document[lifecycle.flag] = flag == 1
        return document, count

    return read


def tally(connection: sqlite3.Connection, rule: SweepRule, now: datetime) -> Tally:
    """Count a collection."""
    return _Counting(connection, rule, now).tally()


class _Counting:
    """One count. A plus keeps a condition from being looked up in an index: another one is meant.

    Times are bound by their names. So each count asks in the same words, and a connection keeps
    these few long statements prepared, and not those of every count that there ever was.
    """

    def __init__(self, connection: sqlite3.Connection, rule: SweepRule, now: datetime) -> None:
        self._connection = connection
        self._sql = sql = Expressions(rule.lifecycle)
        farthest = time_text(now + FARTHEST_AHEAD)
        self._behind = f"{farthest}{AFTER_ID}"
        self._values = {
            "since": time_text(now - rule.grace),
            "farthest": farthest,
            "behind": self._behind,
        }
        views = {view: questions(connection, rule, view, now) for view in View}
        self._outdated, self._permanent = views.pop(View.OUTDATED), views.pop(View.PERMANENT)
        self._views = {view: asked for view, (asked,) in views.items()}
        self._young = (
            f"{sql.created} > :since and {sql.created} <= :farthest "
            f"and not coalesce({sql.attempts} > 0, false)"
        )
        """Never attempted, and made only just now: its event may be on its way."""
        pending = f"+{sql.stage} = '{State.PENDING}'"
        unmoved = self._any_of(f"+{sql.attempted}", self._views[View.UNMOVED].ranges, "unmoved")
        undated = self._any_of(f"+{sql.attempted}", self._undated, "undated")
        self._unmoved = f"{pending} and {unmoved} and not ({undated} and {self._young})"
        self._lone = f"+{sql.lease} is null and +{sql.claim} is null"
        self._unclaimed = f"+{sql.claim} is null"
        self._pending = pending

    def tally(self) -> Tally:
        oldest = min((time for time in self._times() if time is not None), default=None)
        given_up = self._number(f"{self._sql.stage} = '{State.GIVEN_UP}'")
        permanent = sum(map(self._in, self._permanent))
        return Tally(stuck=self._stuck(), given_up=given_up, permanent=permanent, oldest=oldest)

    def _stuck(self) -> int:
        unmoved, sql = self._views[View.UNMOVED], self._sql
        found = self._in(self._views[View.FAILED]) + sum(map(self._in, self._outdated))
        found += self._in(unmoved)
        found -= self._in(unmoved, self._young, self._undated)
        # Whoever holds one decides, not when it last moved.
        found -= self._number(f"{sql.lease} > '' and {self._unmoved}")
        found -= self._number(f"{sql.claim} > '' and +{sql.lease} is null and {self._unmoved}")
        found += self._in(self._views[View.LEASE_OVER], self._unclaimed)
        return found + self._in(self._views[View.CLAIM_OVER], self._pending)

    def _in(
        self, asked: Question, which: str = "true", ranges: Sequence[Range] | None = None
    ) -> int:
        parts = asked.ranges if ranges is None else ranges
        return sum(
            self._number(f"{asked.which} and {self._within(asked.key, part)} and {which}")
            for part in parts
        )

    def _number(self, which: str) -> int:
        (found,) = self._ask(f"select count(*) from headway_documents where {which}")
        return int(found)

    def _ask(self, statement: str) -> list[Any]:
        """Give the one column of an answer."""
        return [value for (value,) in self._connection.execute(statement, self._values)]

    def _within(self, key: str, part: Range, name: str = "part") -> str:
        """Bind the bounds of a part by its name, and give the condition."""
        self._values.update({f"{name}_above": part.above, f"{name}_below": part.below})
        return f"{key} > :{name}_above and {key} < :{name}_below"

    def _any_of(self, key: str, parts: Sequence[Range], name: str) -> str:
        each = (self._within(key, part, f"{name}{n}") for n, part in enumerate(parts))
        return f"({' or '.join(each)})"

    @property
    def _undated(self) -> Sequence[Range]:
        """The keys of what has no time, or one that is none."""
        return Range("", UNDATED), Range(self._behind, _LAST)

    def _times(self) -> Iterable[datetime | None]:
        """Say when the oldest of each kind was attempted; if nobody knows, when it was made."""
        failed, unmoved = self._views[View.FAILED], self._views[View.UNMOVED]
        of_failures = ((asked, "true") for asked in (failed, *self._outdated))
        for asked, which in (*of_failures, (unmoved, self._lone)):
            yield self._oldest(asked, which)
            yield self._oldest_made(asked, which)
        yield self._oldest_held(self._views[View.LEASE_OVER], self._unclaimed)
        yield self._oldest_held(self._views[View.CLAIM_OVER], self._pending)

    def _oldest(self, asked: Question, which: str) -> datetime | None:
        for part in reversed(asked.ranges):
            dated = Range(max(part.above, UNDATED), min(part.below, self._behind))
            keys = self._ask(
                f"select {asked.key} from headway_documents where {asked.which} "
                f"and {self._within(asked.key, dated)} and {which} order by {asked.key} "
                f"limit {_LOOKED_AT}"
            )
            if (found := _first_time(keys)) is not None:
                return found
        return None

    def _oldest_made(self, asked: Question, which: str) -> datetime | None:
        made = self._sql.created
        times = [
            time
            for part in self._undated
            for time in self._ask(
                f"select {made} from headway_documents where {asked.which} "
                f"and {self._within(asked.key, part)} and {made} <= :farthest and {which} "
                f"order by 1 limit {_LOOKED_AT}"
            )
        ]
        return _first_time(sorted(times))

    def _oldest_held(self, asked: Question, which: str) -> datetime | None:
        """Likewise of what was leased or claimed: these indexes are not ordered by attempts."""
        attempted, made = self._sql.attempted, self._sql.created
        is_dated = f"{attempted} > '{UNDATED}' and {attempted} < :behind"
        time = f"case when {is_dated} then {attempted} else {made} end"
        times = [
            found
            for part in asked.ranges
            for found in self._ask(
                f"select {time} from headway_documents where {self._within(asked.key, part)} "
                f"and {which} and {time} <= :behind order by 1 limit {_LOOKED_AT}"
            )
        ]
        return _first_time(sorted(times))


def _first_time(texts: Iterable[str]) -> datetime | None:
    times = (time_of(text) for text in texts)
    return next((time for time in times if time is not None), None)
