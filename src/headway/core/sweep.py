"""Which documents are stuck, and what becomes of them. Pure: a sweeper carries it out.

Two gates. A document whose last attempt failed is due when its backoff has elapsed. One that may
still be in somebody's hands is due when, besides, nothing has moved for `stuck_after`, or when the
lease of whoever had it is over. One that was never attempted is due at once, unless it is younger
than `grace`: its first event may still be on its way.

What failed permanently is left to a person or a new event; where a programming error caused it,
another version of its service is given one attempt.

What has had all its attempts is given up. If the last of them is not known to have failed, its
event may be about to come back: it is given the backoff to do so, after its lease.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from headway.core.beginning import UNCLAIMED, is_sweep_of, lease_runs, sweep_operation
from headway.core.catalogue import PROGRAMMING
from headway.core.document import (
    ATTEMPT_COUNT,
    CLAIM_BEFORE,
    CLAIM_TOKEN,
    CLAIM_UNTIL,
    FARTHEST_CLAIM,
    FARTHEST_SCHEDULE,
    LAST_ATTEMPT_TIME,
    LAST_OPERATION,
    LEASE_TOKEN,
    LEASE_UNTIL,
    MOST,
    RETRY_AT,
    STATUS,
    SWEEP_GENERATION,
    WAITING,
    count,
    moment,
    past,
)
from headway.core.lifecycle import Lifecycle, State, permanent_failure
from headway.core.travel import instant
from headway.core.writes import ID, Document

_ZERO = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRule:
    """When a document of one collection is stuck, and how far apart its attempts are."""

    lifecycle: Lifecycle
    base_delay: timedelta = timedelta(seconds=300)
    max_delay: timedelta = timedelta(seconds=3600)
    stuck_after: timedelta = timedelta(hours=24)
    grace: timedelta = timedelta(seconds=900)
    version: str | None = None
    """The one version that all live workers run; None: they run several, or none lives."""

    @property
    def collection(self) -> str:
        return self.lifecycle.collection

    def delay(self, attempts: int) -> timedelta:
        """The wait after so many attempts: `min(base * 2**(attempts-1), max)`; none before any.

        >>> rule = SweepRule(lifecycle=Lifecycle("messages"))
        >>> [rule.delay(n) // timedelta(minutes=1) for n in range(6)]
        [0, 5, 10, 20, 40, 60]
        """
        if attempts <= 0:
            return _ZERO
        doublings: int = 1 << min(attempts - 1, 30)
        if self.base_delay > self.max_delay / doublings:  # so that no product is too long
            return self.max_delay
        return self.base_delay * doublings


class Why(StrEnum):
    """Why a document is left alone."""

    PROCESSED = "processed"
    GIVEN_UP = "given up"
    FOREIGN = "its status is not one of ours"
    BACKOFF = "backoff"
    """It is stuck, and its next attempt is not due yet; or it is too early to give it up."""
    IN_HAND = "in hand"
    """A worker may be at it, or its event waits in a queue."""
    LEASED = "leased"
    """A worker is at it, or died less than a lease ago; or its event waits for a retry."""
    CLAIMED = "claimed"
    """Another sweeper is publishing its event."""
    YOUNG = "young"
    SCHEDULED = "scheduled"
    """A person said when."""
    PERMANENT = "failed permanently"
    """No attempt will help, until a person or a new event says otherwise."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing is done."""

    why: Why


@dataclass(frozen=True, slots=True)
class Requeue:
    """Its event is published under this operation."""

    operation: str
    generation: int
    attempt: int
    again: bool = False
    """It was claimed before and nobody knows whether it was published: nothing more is counted."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It has had all its attempts."""

    attempts: int


Judgement = Leave | Requeue | GiveUp


def judge(document: Mapping[str, Any], rule: SweepRule, now: datetime) -> Judgement:  # noqa: PLR0911 (one for each row of the table)
    """Say what a sweep does with one document. Every document gets exactly one answer."""
    state = rule.lifecycle.state(document)
    if state in _SETTLED:
        return Leave(_SETTLED[state])
    if state is State.FAILED and stays_failed(document, rule):
        return Leave(Why.PERMANENT)
    if document.get(CLAIM_TOKEN) is not None:
        return _claimed(document, rule, now)
    if lease_runs(document, rule.lifecycle, now):
        return Leave(Why.LEASED)
    scheduled = _scheduled(document, now)
    if scheduled is not None and scheduled > now:
        return Leave(Why.SCHEDULED)
    attempts = count(document, ATTEMPT_COUNT)
    began = past(document.get(LAST_ATTEMPT_TIME), now)
    if state is State.PENDING and not _let_go(document, began, rule, now):
        return Leave(Why.IN_HAND if attempts or began else Why.YOUNG)
    is_last = attempts >= rule.lifecycle.most_attempts
    ends = backoff_ends(document, rule, now)
    if ends is not None and ends > now and (is_last or scheduled is None):
        return Leave(Why.BACKOFF)
    if is_last:
        return GiveUp(attempts)
    generation = min(count(document, SWEEP_GENERATION) + 1, MOST)
    operation = sweep_operation(rule.collection, str(document[ID]), generation, now)
    return Requeue(operation, generation, min(attempts + 1, MOST))


_SETTLED = {
    State.PROCESSED: Why.PROCESSED,
    State.GIVEN_UP: Why.GIVEN_UP,
    State.FOREIGN: Why.FOREIGN,
}


def stays_failed(document: Mapping[str, Any], rule: SweepRule) -> bool:
    """Say whether no sweep takes up a failed document, because it failed permanently.

    A programming error may be one of a version only. So another version is given one attempt, and
    if that fails in the same way, the failure is one of that version.
    """
    failure = permanent_failure(document)
    if failure is None:
        return False
    if rule.version is None or failure["rule"] not in PROGRAMMING:
        return True
    return rule.version == (failure.get("version") or "")


def _claimed(document: Mapping[str, Any], rule: SweepRule, now: datetime) -> Judgement:
    until = moment(document.get(CLAIM_UNTIL))
    if until is not None and now < until <= now + FARTHEST_CLAIM:
        return Leave(Why.CLAIMED)
    generation = count(document, SWEEP_GENERATION)
    operation = _claimed_under(document, rule, generation)
    return Requeue(operation, generation, count(document, ATTEMPT_COUNT), again=True)


def _claimed_under(document: Mapping[str, Any], rule: SweepRule, generation: int) -> str:
    """Find the operation of a claim again, so that its event is published under it a second time.

    Where somebody has written over it, one is made of what is there: each sweeper makes the same.
    """
    one, last = str(document[ID]), document.get(LAST_OPERATION)
    if isinstance(last, str) and is_sweep_of(last, rule.collection, one, generation):
        return last
    at = moment(document.get(LAST_ATTEMPT_TIME))
    return sweep_operation(rule.collection, one, generation, at)


def backoff_ends(document: Mapping[str, Any], rule: SweepRule, now: datetime) -> datetime | None:
    """Say until when nothing is done after an attempt; None: there is nothing to wait for.

    What failed for the last time is given up at once. If the lease of the last attempt has ended,
    its event is given a backoff to come back; and if that waited for a retry, as long as anything
    that may be in somebody's hands.
    """
    attempts = count(document, ATTEMPT_COUNT)
    if attempts < rule.lifecycle.most_attempts:
        began = past(document.get(LAST_ATTEMPT_TIME), now)
        return None if began is None else began + rule.delay(attempts)
    token, until = document.get(LEASE_TOKEN), past(document.get(LEASE_UNTIL), now)
    if token is None or until is None or rule.lifecycle.state(document) is not State.PENDING:
        return None
    return until + (rule.stuck_after if token == WAITING else rule.delay(attempts))


def _scheduled(document: Mapping[str, Any], now: datetime) -> datetime | None:
    at = moment(document.get(RETRY_AT))
    return None if at is None or at > now + FARTHEST_SCHEDULE else at


def _let_go(
    document: Mapping[str, Any], began: datetime | None, rule: SweepRule, now: datetime
) -> bool:
    """Say whether a pending document is in nobody's hands, as far as anybody can tell."""
    if document.get(LEASE_TOKEN) is not None:
        return True  # and the lease is over
    if began is not None:
        return began + rule.stuck_after <= now
    if count(document, ATTEMPT_COUNT):
        return True  # attempted, nobody knows when
    made = past(document.get(rule.lifecycle.created), now)
    return made is None or made + rule.grace <= now


def claimed(
    document: Document, requeue: Requeue, *, token: str, until: datetime, now: datetime
) -> Document:
    """Give what a claim changes in a document: the attempt is counted here, once."""
    changes: Document = {CLAIM_TOKEN: token, CLAIM_UNTIL: instant(until)}
    if requeue.again:
        return changes
    return {
        **changes,
        CLAIM_BEFORE: {field: document.get(field) for field in _GIVEN_BACK},
        STATUS: State.PENDING.value,
        ATTEMPT_COUNT: requeue.attempt,
        LAST_ATTEMPT_TIME: instant(now),
        LAST_OPERATION: requeue.operation,
        SWEEP_GENERATION: requeue.generation,
        LEASE_TOKEN: None,
        LEASE_UNTIL: None,
        RETRY_AT: None,
    }


def given_back(document: Mapping[str, Any]) -> Document:
    """Give what is changed when a claimed event was certainly not published.

    The generation stays: what was never sent under it will not be sent under it later. Where
    somebody has settled the document since, or scheduled it, that stays too.
    """
    before = document.get(CLAIM_BEFORE)
    if document.get(STATUS) != State.PENDING.value or not isinstance(before, dict):
        return dict(UNCLAIMED)
    since = {field: document[field] for field in (RETRY_AT,) if document.get(field) is not None}
    return {**before, **since, **UNCLAIMED}


def given_up(rule: SweepRule, now: datetime) -> Document:
    """Give what is changed when a document has had all its attempts."""
    return {
        STATUS: rule.lifecycle.given_up_word,
        "givenUpAt": instant(now),
        LEASE_TOKEN: None,
        LEASE_UNTIL: None,
    }


def watched(rule: SweepRule) -> tuple[str, ...]:
    """Name the fields by which a document is judged: while they stay, the judgement holds."""
    return _WATCHED if rule.lifecycle.flag is None else (*_WATCHED, rule.lifecycle.flag)


_WATCHED = (
    STATUS,
    ATTEMPT_COUNT,
    LAST_ATTEMPT_TIME,
    LAST_OPERATION,
    LEASE_TOKEN,
    LEASE_UNTIL,
    CLAIM_TOKEN,
    CLAIM_UNTIL,
    SWEEP_GENERATION,
    RETRY_AT,
)


_GIVEN_BACK = tuple(
    field for field in _WATCHED if field not in {CLAIM_TOKEN, CLAIM_UNTIL, SWEEP_GENERATION}
)
