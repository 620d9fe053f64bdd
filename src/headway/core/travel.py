"""What travels beside an event: its operation, its attempts so far, and what each of them met.

It is never inside the event, which belongs to the user. An engine keeps it with the event, so that
attempt numbers and the time of the first one outlive any worker.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from headway.core.event import FIRST_GENERATION
from headway.core.failure import Failure, History, Verdict, in_utf8, words
from headway.core.secrets import hidden

HISTORY_LIMIT = 16_384
"""Bytes of history, as JSON, that travel with an event."""
LARGEST_HEADER = 131_072
"""Bytes of metadata read from one header: more than Headway writes, and what AMQP carries."""
LONGEST_MESSAGE = 1_000
_LONGEST_TRACEBACK = 4_000
_HIGHEST_COUNT = 1_000_000
_EARLIEST, _LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
_LONGEST_PARKED = timedelta(days=3_660)


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt that failed, as it is kept with the event."""

    number: int
    at: str
    worker: str
    error_type: str
    message: str
    verdict: str
    rule: str
    traceback: str = ""


class Travel(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Our own facts about one event on its way."""

    operation: str
    """Stays the same through retries, sweeps and replays."""
    generation: str = FIRST_GENERATION
    """Tells a deliberate second run from a redelivery."""
    failures: int = 0
    """Attempts that failed and count."""
    not_yet: int = 0
    """Of these, the ones that waited for a document: they have a schedule of their own."""
    first_seen: datetime | None = None
    """When the first attempt began."""
    parked: timedelta = timedelta()
    """Time spent waiting for a dependency that was down."""
    parked_since: datetime | None = None
    requeues: int = 0
    """How often a person sent it again."""
    history: tuple[AttemptRecord, ...] = ()

    @property
    def attempt(self) -> int:
        """The number of the attempt that comes next; a crash does not change it."""
        return self.failures + 1

    def resumed(self, now: datetime) -> "Travel":
        """Count the time spent parked, now that it is over."""
        if self.parked_since is None:
            return self
        parked = self.parked + max(now - self.parked_since, timedelta())
        return msgspec.structs.replace(self, parked=parked, parked_since=None)

    def parked_at(self, now: datetime) -> "Travel":
        """Begin to wait for a dependency. Nothing is counted against the event."""
        return msgspec.structs.replace(self, parked_since=now)

    def history_for(self, verdict: Verdict, *, first_seen: datetime) -> History:
        """Say what `decide` needs to know after one more attempt that ended with this verdict."""
        before = self.not_yet if verdict is Verdict.NOT_YET else self.failures - self.not_yet
        return History(attempts=before + 1, first_seen=first_seen, parked=self.parked)

    def failed(self, record: AttemptRecord, *, first_seen: datetime) -> "Travel":
        """Count an attempt that failed."""
        return msgspec.structs.replace(
            self,
            failures=self.failures + 1,
            not_yet=self.not_yet + (record.verdict == Verdict.NOT_YET),
            first_seen=self.first_seen or first_seen,
            history=bounded((*self.history, record)),
        )

    def given_back(self, rule: str, since: datetime, until: datetime | None = None) -> "Travel":
        """Take back the latest attempts that fell into an outage: they were nobody's fault."""
        history = list(self.history)
        while history and history[-1].rule == rule and _when(history[-1]) >= since:
            if until is not None and _when(history[-1]) > until:
                break
            history.pop()
        back = self.history[len(history) :]
        if not back:
            return self
        return msgspec.structs.replace(
            self,
            failures=self.failures - len(back),
            not_yet=self.not_yet - sum(each.verdict == Verdict.NOT_YET for each in back),
            history=tuple(history),
        )

    def anew(self, now: datetime) -> "Travel":
        """Count all its time so far as parked: none of its attempts is left."""
        parked = max(now - (self.first_seen or now), self.parked)
        return msgspec.structs.replace(self, parked=parked)


def invalid_field(travel: Travel) -> tuple[str, str] | None:
    """Give the first field that Headway cannot have written, and what is wrong with it.

    Every reader of metadata from outside uses this. Wrong counts and times would mean endless
    retries, or an error of our own in the middle of a decision.

    >>> invalid_field(Travel(operation="order-1", failures=-3))
    ('failures', 'is not a number from 0 to 1000000')
    """
    return next(_invalid_fields(travel), None)


def _invalid_fields(travel: Travel) -> Iterator[tuple[str, str]]:
    for name in ("failures", "not_yet", "requeues"):
        if not 0 <= getattr(travel, name) <= _HIGHEST_COUNT:
            yield name, f"is not a number from 0 to {_HIGHEST_COUNT}"
    if travel.not_yet > travel.failures:
        yield "not_yet", "is more than all failures"
    for name in ("first_seen", "parked_since"):
        at = getattr(travel, name)
        if at is not None and (problem := _problem_of_time(at)):
            yield name, problem
    if not timedelta() <= travel.parked <= _LONGEST_PARKED:
        yield "parked", f"is not a duration from 0 to {_LONGEST_PARKED.days} days"
    if not travel.generation:
        yield "generation", "is empty"
    for attempt in travel.history:
        if problem := _problem_of_time(attempt.at):
            yield "history", f"has an attempt whose time {problem}"


def _problem_of_time(at: datetime | str) -> str:
    try:
        at = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        return "is not an ISO 8601 time"
    if at.tzinfo is None:
        return "has no time zone"
    return "" if _EARLIEST <= at <= _LATEST else "is not between the years 2000 and 2200"


def record(failure: Failure, *, worker: str, traceback: str = "") -> AttemptRecord:
    """Put a failed attempt into the words of the case file."""
    return AttemptRecord(
        number=failure.attempt,
        at=instant(failure.at),
        worker=worker,
        error_type=type(failure.error).__name__,
        message=hidden(words(failure.error))[:LONGEST_MESSAGE],
        verdict=str(failure.diagnosis.verdict),
        rule=failure.diagnosis.rule,
        traceback=hidden(in_utf8(traceback))[-_LONGEST_TRACEBACK:],
    )


def bounded(history: tuple[AttemptRecord, ...]) -> tuple[AttemptRecord, ...]:
    """Keep what travels small: old tracebacks go first, then the attempts in the middle."""
    kept = list(history)
    for index in range(len(kept) - 1):
        if _size(kept) <= HISTORY_LIMIT:
            break
        kept[index] = msgspec.structs.replace(kept[index], traceback="")
    while len(kept) > 2 and _size(kept) > HISTORY_LIMIT:  # noqa: PLR2004 (the first and the last)
        del kept[len(kept) // 2]
    return tuple(kept)


def _size(history: list[AttemptRecord]) -> int:
    return len(msgspec.json.encode(history))


def _when(record: AttemptRecord) -> datetime:
    return datetime.fromisoformat(record.at)


def instant(now: datetime) -> str:
    """Write an instant as the documents of this project show it: UTC, with a Z."""
    return now.astimezone(UTC).isoformat().replace("+00:00", "Z")
