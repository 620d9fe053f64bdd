"""What travels beside an event: its operation, its attempts so far, and what each of them met.

It is never inside the event, which belongs to the user. An engine keeps it with the event, so that
attempt numbers and the time of the first one outlive any worker.
"""

from collections.abc import Collection, Iterator
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
LONGEST_VERSION = 64
"""Characters of the version of a service."""
MOST_REFUSALS = 16
"""Versions that can refuse one event, before it ends whatever else is alive."""
_LONGEST_REASON = 200
_AWAITED_SHOWN = 4
_PART_OF_WAIT = 10
_FIRST_DELAY, _LAST_DELAY = timedelta(seconds=1), timedelta(seconds=15)
_HIGHEST = {"failures": 1_000_000, "not_yet": 1_000_000, "requeues": 1_000_000, "hops": 10**15}
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
    version: str = ""
    """The version of the service that ran it."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version of the service that cannot read the event, as it is kept with the event."""

    version: str
    since: str
    """When it first refused the event."""
    error: str
    awaited: tuple[str, ...] = ()
    """Some of the versions that were alive since then and had not refused it."""


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
    hops: int = 0
    """Handlers that published one after another until this event; 0: it came from outside."""
    history: tuple[AttemptRecord, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    """Versions of the service that cannot read it, each once."""

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
            first_seen=first_seen,
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

    def refused(
        self, version: str, error: BaseException, live: Collection[str], now: datetime
    ) -> "Travel":
        """Note that a version cannot read the event, of all that are alive; count nothing."""
        known = {each.version: each for each in self.refusals}
        before = known.get(version)
        others = sorted(set(live) - {*known, version})
        awaited = dict.fromkeys((*(before.awaited if before else ()), *others))
        known[version] = Refusal(
            version=version,
            since=before.since if before else instant(now),
            error=hidden(f"{type(error).__name__}: {words(error)}")[:_LONGEST_REASON],
            awaited=tuple(awaited)[:_AWAITED_SHOWN],
        )
        return msgspec.structs.replace(self, refusals=tuple(known.values()))

    @property
    def awaited(self) -> tuple[str, ...]:
        """Some of the versions that it waited for and that have not refused it."""
        refused = {each.version for each in self.refusals}
        named = {each: None for refusal in self.refusals for each in refusal.awaited}
        return tuple(each for each in named if each not in refused)

    def delay_after_refusal(self, now: datetime, draw: float) -> timedelta:
        """Say how long to wait for another version: a part of its wait so far, from 1 to 15 s.

        A quarter is left to chance: workers of two versions must not keep in step.
        """
        first = min((datetime.fromisoformat(each.since) for each in self.refusals), default=now)
        return min(max((now - first) / _PART_OF_WAIT, _FIRST_DELAY), _LAST_DELAY) * ((3 + draw) / 4)

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
    for name, highest in _HIGHEST.items():
        if not 0 <= getattr(travel, name) <= highest:
            yield name, f"is not a number from 0 to {highest}"
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
    yield from (("refusals", problem) for problem in invalid_refusals(travel.refusals))


def invalid_refusals(refusals: tuple[Refusal, ...]) -> Iterator[str]:
    """Say what Headway cannot have written."""
    if len(refusals) > MOST_REFUSALS:
        yield f"has more than {MOST_REFUSALS} entries"
    if len({each.version for each in refusals}) < len(refusals):
        yield "names a version twice"
    for each in refusals:
        if problem := _problem_of_time(each.since):
            yield f"has an entry whose time {problem}"
        if any(len(version) > LONGEST_VERSION for version in (each.version, *each.awaited)):
            yield f"has a version of more than {LONGEST_VERSION} characters"
        if len(each.awaited) > _AWAITED_SHOWN or len(each.error) > _LONGEST_REASON:
            yield "has an entry that is too long"


def _problem_of_time(at: datetime | str) -> str:
    try:
        at = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        return "is not an ISO 8601 time"
    if at.tzinfo is None:
        return "has no time zone"
    return "" if _EARLIEST <= at <= _LATEST else "is not between the years 2000 and 2200"


def record(
    failure: Failure, *, worker: str, version: str = "", traceback: str = ""
) -> AttemptRecord:
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
        version=version,
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
