"""What a person may decide about a document, and what the decision changes in it."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from headway.core.document import (
    ATTEMPT_COUNT,
    LAST_ATTEMPT_TIME,
    LAST_FAILED_AT,
    LAST_OPERATION,
    PERMANENT_FAILURE,
    RETRY_AT,
    STATUS,
    count,
)
from headway.core.lifecycle import Lifecycle, State, permanent_failure
from headway.core.sweep import GiveUp, Leave, Requeue, SweepRule, Why, judge
from headway.core.travel import instant
from headway.core.unreadable import CURE, is_stand_in
from headway.core.writes import Document

GIVEN_UP_AT = "givenUpAt"
_ARCHIVE = "_dead_letter"


class Decision(StrEnum):
    """What is to become of documents."""

    RESET = "reset"
    """Back to pending, with all attempts; the next sweep takes it, or the one after a time."""
    RETRY = "retry"
    """Its next attempt is made at a time that a person sets."""
    PURGE = "purge"
    """Removed for good."""
    ARCHIVE = "archive"
    """Put away, into a collection that nobody sweeps."""
    RESTORE = "restore"
    """Brought back from there, and reset."""


def archive_of(collection: str) -> str:
    """Name the collection that documents are put away into.

    >>> archive_of("messages")
    'messages_dead_letter'
    """
    return f"{collection}{_ARCHIVE}"


def archived_from(collection: str) -> str | None:
    """Name the collection whose archive this is; None: it is none.

    >>> archived_from("messages_dead_letter")
    'messages'
    """
    of = collection.removesuffix(_ARCHIVE)
    return of if of and of != collection else None


def refusal(decision: Decision, document: Mapping[str, Any], lifecycle: Lifecycle) -> str | None:
    """Say why a decision cannot be carried out on a document; None: it can."""
    if is_stand_in(document):
        return None if decision is Decision.PURGE else _UNREADABLE
    state = lifecycle.state(document)
    if state in _NEVER:
        return _NEVER[state]
    match decision:
        case Decision.RESTORE:
            return None
        case Decision.RESET:
            return _PENDING if state is State.PENDING else None
        case Decision.RETRY:
            spent = count(document, ATTEMPT_COUNT) >= lifecycle.most_attempts
            return _SPENT if spent or state is State.GIVEN_UP else None
        case Decision.PURGE | Decision.ARCHIVE:
            settled = state is State.GIVEN_UP or permanent_failure(document) is not None
            return None if settled else _ALIVE


def not_stuck(
    decision: Decision, document: Mapping[str, Any], rule: SweepRule, now: datetime
) -> str | None:
    """Say why a document that was not given up is not put away or removed even if a person insists.

    None: it can be. It is in nobody's hands, as far as anybody can tell.
    """
    lifecycle = rule.lifecycle
    if is_stand_in(document):
        return _UNREADABLE_STUCK if decision is Decision.PURGE else _UNREADABLE
    if lifecycle.state(document) not in {State.PENDING, State.FAILED}:
        return refusal(decision, document, lifecycle)
    # The time that a person set says nothing about whose hands it is in.
    match judge({**document, RETRY_AT: None}, rule, now):
        case Requeue(again=True) if decision is Decision.ARCHIVE:
            return _CLAIM_OVER
        case Requeue() | GiveUp() | Leave(why=Why.BACKOFF | Why.PERMANENT):
            return None
        case Leave(why=why):
            return _IN_HANDS.get(why, _ALIVE)


_NEVER = {
    State.PROCESSED: "it is processed: there is nothing left to decide",
    State.FOREIGN: (
        "its status is not one that this lifecycle knows: write pending or failed into it by hand, "
        "or declare the word for success with Lifecycle(processed=...)"
    ),
}
_UNREADABLE = f"nobody can read it, for it is no document: {CURE}"
_UNREADABLE_STUCK = "nobody can read it, so nobody knows whether it is stuck: leave --stuck out"
_PENDING = "it is pending, so a worker may have it; a sweep takes it when it is stuck"
_SPENT = "it has no attempts left: reset it (headway documents reset)"
_ALIVE = (
    "it was not given up: sweeps try it again by themselves; if they cannot, because no event can "
    "be made of it, name its id and say --stuck"
)
_CLAIM_OVER = (
    "a sweeper died over it, so that its event may be on its way: the next sweep sends it again"
)
_IN_HANDS = {
    Why.IN_HAND: (
        "a worker may have it, or its event waits in a queue: it has moved within "
        "RETRY_JOB_STUCK_THRESHOLD_HOURS"
    ),
    Why.LEASED: "a worker has it, or died just now: its lease has to end first",
    Why.CLAIMED: "a sweeper is sending its event right now",
    Why.YOUNG: "it is new, and its first event may be on its way (RETRY_JOB_GRACE_SECONDS)",
}


def reset(lifecycle: Lifecycle, at: datetime | None) -> Document:
    """Give what a reset changes: the document begins anew, at once or not before a time.

    The generation stays, and so does the last error. No operation has it any more, so that the
    letter of the one that failed is not taken for overtaken.
    """
    changes: Document = {
        STATUS: State.PENDING.value,
        ATTEMPT_COUNT: 0,
        LAST_ATTEMPT_TIME: None,
        LAST_OPERATION: None,
        RETRY_AT: None if at is None else instant(at),
        PERMANENT_FAILURE: None,
    }
    if lifecycle.flag is not None:
        changes[LAST_FAILED_AT] = None  # which says "failed" where the status does not
    return changes


def scheduled(at: datetime) -> Document:
    """Give what is changed when a person says when the next attempt is to be made.

    That there is to be one holds for a document that failed permanently too.
    """
    return {RETRY_AT: instant(at), PERMANENT_FAILURE: None}
