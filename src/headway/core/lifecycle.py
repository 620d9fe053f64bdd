"""The life of a document: pending, then processed or failed; failed too often, given up.

    pending ──▶ processed
      │  ▲
      ▼  │ sweep, requeue
    failed ──▶ failed_max_retries ──▶ pending, when a person resets it

`processing` is read as pending and never written: what crashes in it would stay in it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from headway.core.document import (
    ATTEMPT_COUNT,
    CLAIM_BEFORE,
    CLAIM_TOKEN,
    CLAIM_UNTIL,
    CREATED_AT,
    LAST_ATTEMPT_TIME,
    LAST_ERROR,
    LAST_FAILED_AT,
    LAST_OPERATION,
    LEASE_TOKEN,
    LEASE_UNTIL,
    PERMANENT_FAILURE,
    STATUS,
    SWEEP_GENERATION,
    WAITING,
    moment,
)
from headway.core.errors import ConfigurationError
from headway.core.travel import instant
from headway.core.unreadable import is_stand_in
from headway.core.writes import Document


class State(StrEnum):
    """Where a document is in its life."""

    PENDING = "pending"
    FAILED = "failed"
    """Its last attempt failed; another one may follow, unless it failed permanently."""
    PROCESSED = "processed"
    GIVEN_UP = "failed_max_retries"
    """Nothing more happens until a person decides."""
    FOREIGN = "foreign"
    """A status that this lifecycle does not know, or no document: somebody else's business."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How the documents of one collection say where they are.

    Args:
        collection: Its name.
        max_attempts: Tries in all, the first one included; then the document is given up. If not
            given, 3; of `chunks` and `threads`, 5.
        flag: A field that is true once a document is processed, such as `embedding_generated`,
            where that is said by a field of its own and not by `status`.
        processed: The word for success in `status`; `processed` and `completed` are both read.
        lease: How long a worker's hold on a document lasts unless it is renewed. Without one, a
            document whose worker died is recovered when it has not moved for a day; with one, when
            the lease and the backoff after the attempt are over.
        created: Field that holds when a document was made.
    """

    collection: str
    max_attempts: int | None = None
    flag: str | None = None
    processed: str = "processed"
    lease: timedelta | None = None
    created: str = CREATED_AT

    def __post_init__(self) -> None:
        given: object = self.collection
        if not isinstance(given, str) or not given:
            raise ConfigurationError(
                f"Invalid Lifecycle({self.collection!r:.80}): it needs the name of its collection. "
                'Use Lifecycle("orders").'
            )
        if self.max_attempts is not None and (
            type(self.max_attempts) is not int or self.max_attempts < 1
        ):
            raise ConfigurationError(
                f"Invalid max_attempts={self.max_attempts!r} of {self.collection!r}: the first try "
                "counts. Use a whole number from 1."
            )
        flag: object = self.flag
        if flag is not None and (
            not isinstance(flag, str)
            or not flag
            or flag in {STATUS, ATTEMPT_COUNT, LAST_OPERATION, "_id"}
        ):
            raise ConfigurationError(
                f"Invalid flag={flag!r:.80} of {self.collection!r}: it names a field of your own "
                'that is true when a document is processed. Use flag="embedding_generated".'
            )
        if self.lease is not None and not isinstance(self.lease, timedelta):
            raise ConfigurationError(
                f"lease={self.lease!r} of {self.collection!r} is not accepted: use a duration, "
                "such as timedelta(minutes=1)"
            )
        if self.lease is not None and self.lease < timedelta(seconds=1):
            raise ConfigurationError(
                f"lease={self.lease} of {self.collection!r} is not accepted: it has to be renewed "
                "three times before it ends; use a second or more"
            )
        if self.processed in {*_PENDING, _FAILED, _GIVEN_UP, ""}:
            raise ConfigurationError(
                f"processed={self.processed!r} of {self.collection!r} is not accepted: it means "
                "something else; use 'processed', 'completed' or a word of your own"
            )

    @property
    def most_attempts(self) -> int:
        """Tries in all: as was said, or else as is usual for this collection."""
        if self.max_attempts is not None:
            return self.max_attempts
        return ATTEMPTS.get(self.collection, _USUAL_ATTEMPTS)

    @property
    def pending_words(self) -> tuple[str | None, ...]:
        """What `status` holds while a document waits; None: it may be missing."""
        return _PENDING

    @property
    def processed_words(self) -> tuple[str, ...]:
        """What `status` holds when a document is processed, where no flag says so."""
        return (self.processed, *_PROCESSED)

    @property
    def words(self) -> tuple[str, ...]:
        """All that `status` may hold, in the words of this lifecycle."""
        pending = (each for each in _PENDING if each is not None)
        return (*pending, *self.processed_words, _FAILED, _GIVEN_UP)

    @property
    def failed_word(self) -> str:
        return _FAILED

    @property
    def given_up_word(self) -> str:
        return _GIVEN_UP

    def state(self, document: Mapping[str, Any]) -> State:
        """Say where a document is."""
        status = document.get(STATUS)
        if self.flag is not None and document.get(self.flag) is True:
            return State.PROCESSED
        if isinstance(status, str) and status in _ENDS:
            return _ENDS[status]
        if self.flag is not None and not is_stand_in(document):
            return State.FAILED if _failed_last(document) else State.PENDING
        if status in _PENDING:
            return State.PENDING
        # Not a set: a status may hold anything, and a list cannot be looked up in one.
        return State.PROCESSED if status in self.processed_words else State.FOREIGN

    def born(self, document: Document, now: datetime) -> Document:
        """Give a new document with the fields that recovery needs; those that it has stay."""
        fields: Document = {
            ATTEMPT_COUNT: 0,
            LAST_ATTEMPT_TIME: None,
            self.created: instant(now),
            STATUS: State.PENDING.value,
        }
        if self.flag is not None:
            del fields[STATUS]
            fields[self.flag] = False
        return {**fields, **document}

    def anew(self) -> Document:
        """What a document is changed to when it has more to go through than before.

        For a handler that gives finished work a further part, together with the event about it.
        """
        changes: Document = {
            STATUS: State.PENDING.value,
            ATTEMPT_COUNT: 0,
            LAST_ATTEMPT_TIME: None,  # or sweepers would leave it for a day to whoever had it last
            LAST_ERROR: None,
            # What sweepers counted was about what is over: they have sent nothing that is newer.
            SWEEP_GENERATION: 0,
            CLAIM_TOKEN: None,
            CLAIM_UNTIL: None,
            CLAIM_BEFORE: None,
        }
        if self.flag is not None:
            changes |= {self.flag: False, LAST_FAILED_AT: None}
        return changes

    def on_success(self) -> Document:
        """What a document is changed to when its work is done."""
        changes: Document = {STATUS: self.processed}
        if self.flag is not None:
            changes[self.flag] = True
        return self._let_go(changes)

    def on_wait(self, until: datetime) -> Document:
        """What a document is changed to when it only waits for what others are at.

        Sweepers leave it alone until then; an event about it starts at once.
        """
        return {
            STATUS: State.PENDING.value,
            LEASE_TOKEN: WAITING,
            LEASE_UNTIL: instant(until),
        }

    def on_failure(
        self, error_type: str, message: str, now: datetime, permanent: Document | None = None
    ) -> Document:
        """What a document is changed to when its event ended as a dead letter.

        `permanent` says by which rule and in which version, if no attempt will help.
        """
        at = instant(now)
        # PostgreSQL keeps no NUL, and an error's words must never be why a status is not set.
        error = {
            "type": error_type,
            "message": message.replace("\0", "\N{REPLACEMENT CHARACTER}"),
            "at": at,
        }
        changes: Document = {STATUS: _FAILED, LAST_FAILED_AT: at, LAST_ERROR: error}
        if permanent is not None:
            changes[PERMANENT_FAILURE] = permanent
        return self._let_go(changes)

    def _let_go(self, changes: Document) -> Document:
        if self.lease is not None:
            changes.update({LEASE_TOKEN: None, LEASE_UNTIL: None})
        return changes


def permanent_failure(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give the rule and the version by which a failed document failed permanently, if it did.

    Any value of the field but null says that it did. Where the value is not a rule and a version,
    the cause is unknown.
    """
    failure = document.get(PERMANENT_FAILURE)
    if document.get(STATUS) != _FAILED or failure is None:
        return None
    if isinstance(failure, Mapping) and isinstance(failure.get("rule"), str):
        version = failure.get("version")
        if version is None or isinstance(version, str):
            return failure
    return {"rule": _MALFORMED}


def lost_at_commit(
    lifecycle: Lifecycle, changes: Mapping[str, Any], *, deferred: bool
) -> str | None:
    """Say why a handler cannot change a document of its event so, if it cannot.

    The commit goes by some fields, and sets others: what it sets to the same value is not lost.
    """
    sets = {STATUS: State.PENDING.value} if deferred else lifecycle.on_success()
    for field, value in changes.items():
        if field in _WHOSE:
            return (
                f"{field} says which attempt has the document, and only Headway writes it. Leave "
                "it out."
            )
        if field in sets and value != sets[field]:
            return (
                f"{field}={value!r:.80} would be lost, because the commit of this event sets "
                f"{field}={sets[field]!r} itself. Leave {field} out: use another field for a state "
                "of your own, raise an error to fail the event, or call work.put_off before the "
                "update to leave the document pending."
            )
    return None


_WHOSE = (LAST_OPERATION, LEASE_TOKEN, LEASE_UNTIL)


def by_state(
    lifecycle: Lifecycle, alike: Iterable[tuple[Mapping[str, Any], int]]
) -> dict[State, int]:
    """Count documents by their state, given what decides it and how many have that in common."""
    counted: Counter[State] = Counter()
    for document, count in alike:
        counted[lifecycle.state(document)] += count
    return dict(counted)


ATTEMPTS = {"archives": 3, "messages": 3, "chunks": 5, "threads": 5}
"""For collections of these names, where neither a setting nor a lifecycle says otherwise."""
_USUAL_ATTEMPTS = 3

_MALFORMED = "(malformed)"
"""As the rule of a permanent failure: the field holds neither a rule nor null."""
_PENDING: tuple[str | None, ...] = ("pending", "processing", None)
_PROCESSED = ("processed", "completed")
_FAILED = "failed"
_GIVEN_UP = State.GIVEN_UP.value
_ENDS = {_FAILED: State.FAILED, _GIVEN_UP: State.GIVEN_UP}


def _failed_last(document: Mapping[str, Any]) -> bool:
    """Say whether its last attempt is known to have failed, where no status says so."""
    failed, began = moment(document.get(LAST_FAILED_AT)), moment(document.get(LAST_ATTEMPT_TIME))
    return failed is not None and (began is None or failed >= began)
