"""An operation begins to work on documents: counted once, refused where it comes too late."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any

from headway.core.document import (
    ATTEMPT_COUNT,
    CLAIM_BEFORE,
    CLAIM_TOKEN,
    CLAIM_UNTIL,
    FARTHEST_CLAIM,
    LAST_ATTEMPT_TIME,
    LAST_OPERATION,
    LEASE_TOKEN,
    LEASE_UNTIL,
    MOST,
    PERMANENT_FAILURE,
    STATUS,
    SWEEP_GENERATION,
    WAITING,
    count,
    past,
)
from headway.core.event import FIRST_GENERATION
from headway.core.lifecycle import Lifecycle, State
from headway.core.travel import instant
from headway.core.writes import Document

_SWEPT = re.compile(r"sweep-([0-9]{1,9})(@[0-9.TZ]{1,32})?:(.*)", re.DOTALL)
_LONGEST_ID = 150


def sweep_operation(
    collection: str, document_id: str, generation: int, at: datetime | None = None
) -> str:
    """Name the attempt that a sweeper makes, by its document and the moment of its claim.

    The generation alone would not do: a document that is removed and comes again under its old id
    begins to count anew, and what is remembered of the old one would be taken for its own.

    >>> sweep_operation("messages", "m1", 2, datetime(2026, 11, 16, 10, 30, 15, tzinfo=UTC))
    'sweep-2@20261116T103015.000Z:messages:m1'
    """
    return f"sweep-{generation}{_stamp(at)}:{_named(collection, document_id)}"


def sweep_generation(operation: str) -> int:
    """Say in which generation of a document an operation was made; 0: no sweeper made it.

    >>> sweep_generation("sweep-2@20261116T103015.000Z:messages:m1"), sweep_generation("order-17")
    (2, 0)
    """
    found = _SWEPT.match(operation)
    return int(found[1]) if found else 0


def sweep_run(operation: str) -> str:
    """Name the generation under which the event of a sweep travels.

    >>> sweep_run("sweep-2@20261116T103015.000Z:messages:m1")
    's2@20261116T103015.000Z'
    """
    found = _SWEPT.match(operation)
    return f"s{found[1]}{found[2] or ''}" if found else FIRST_GENERATION


def is_sweep_of(operation: object, collection: str, document_id: str, generation: int) -> bool:
    """Say whether an operation is a sweep of this document in this generation."""
    found = _SWEPT.match(operation) if isinstance(operation, str) else None
    return (
        found is not None
        and int(found[1]) == generation
        and found[3] == _named(collection, document_id)
    )


@lru_cache(maxsize=16)  # a page of documents is judged at one moment
def _stamp(at: datetime | None) -> str:
    # To the millisecond: nobody purges, inserts and claims a document twice in one.
    return "" if at is None else f"@{at.astimezone(UTC):%Y%m%dT%H%M%S}.{at.microsecond // 1000:03}Z"


def _named(collection: str, document_id: str) -> str:
    named = f"{collection}:{document_id}"
    return named if len(named.encode()) <= _LONGEST_ID else sha256(named.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """An operation that is about to work on documents of one collection."""

    lifecycle: Lifecycle
    ids: tuple[str, ...]
    operation: str
    now: datetime
    token: str = ""
    """Whose lease it is to be, where the lifecycle has leases."""
    deliberate: bool = False
    """A person sent it again, and knew what became of the document since."""
    again: bool = False
    """It has begun before, as far as anybody knows: another operation may have begun since."""
    gone: frozenset[str] = frozenset()
    """Tokens of leases whose workers are gone: this operation may take their documents over."""


class How(StrEnum):
    """What an operation is told about one document."""

    BEGUN = "begun"
    OVER = "over"
    """Nothing is left to do for this: it is processed, given up, or a newer operation has it."""
    BUSY = "busy"
    """Somebody else has it in hand."""
    WAITS = "waits"
    """Another document of the same operation is busy: it begins with all of them or with none."""
    FOREIGN = "foreign"
    """Its status is somebody else's: it may be worked on, and is left as it is."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What became of one document, and how it is now."""

    how: How
    document: Document


def begun_together(found: Mapping[str, Document], beginning: Beginning) -> dict[str, Begun]:
    """Say what an operation makes of all its documents that were found.

    If it has to wait for one, it begins with none: whoever only waits counts nothing, and holds
    nothing that others could work on.
    """
    answers = {one: begun(found[one], beginning) for one in beginning.ids if one in found}
    if any(answer.how is How.BUSY for answer in answers.values()):
        for one, answer in answers.items():
            if answer.how is How.BEGUN:
                answers[one] = Begun(How.WAITS, found[one])
    return answers


def begun(document: Document, beginning: Beginning) -> Begun:
    """Say what an operation makes of one document; nothing is changed but for `BEGUN`.

    An operation is counted once, however often it begins. What was given up stays so, whoever
    comes: its event may come back late, and a person may have acted on it by then.
    """
    lifecycle = beginning.lifecycle
    state = lifecycle.state(document)
    same = document.get(LAST_OPERATION) == beginning.operation
    if state is State.PROCESSED:
        return Begun(How.OVER, document)
    if state is State.FOREIGN:
        return Begun(How.FOREIGN, document)
    too_late = state is State.GIVEN_UP or (not same and _comes_too_late(document, beginning))
    if too_late and not beginning.deliberate:
        return Begun(How.OVER, document)
    if lifecycle.lease is not None and _is_held(document, beginning):
        return Begun(How.BUSY, document)
    is_new = not (same or beginning.again or _was_claimed_for(document, beginning))
    after = {
        **document,
        # One at least: what came back may never have begun, or the document begins anew.
        ATTEMPT_COUNT: min(max(count(document, ATTEMPT_COUNT) + is_new, 1), MOST),
        LAST_OPERATION: beginning.operation,
        LAST_ATTEMPT_TIME: instant(beginning.now),
    }
    # Where times say that it failed, they may be of the same moment: then it still looks so.
    if state in {State.FAILED, State.GIVEN_UP} or lifecycle.state(after) is State.FAILED:
        after[STATUS] = State.PENDING.value  # it is in somebody's hands again
    if document.get(CLAIM_TOKEN) is not None:
        after.update(UNCLAIMED)  # its event has evidently arrived
    if document.get(PERMANENT_FAILURE) is not None:
        after[PERMANENT_FAILURE] = None  # this attempt says anew how it ends
    if lifecycle.lease is not None:
        until = instant(beginning.now + lifecycle.lease)
        after.update({LEASE_TOKEN: beginning.token, LEASE_UNTIL: until})
    elif document.get(LEASE_TOKEN) == WAITING:
        after.update({LEASE_TOKEN: None, LEASE_UNTIL: None})  # it was put off, and waits no more
    return Begun(How.BEGUN, after)


UNCLAIMED: Mapping[str, Any] = {CLAIM_TOKEN: None, CLAIM_UNTIL: None, CLAIM_BEFORE: None}


def held_by(document: Mapping[str, Any], lifecycle: Lifecycle, now: datetime) -> str | None:
    """Give the token of the lease that keeps other operations from a document."""
    token = document.get(LEASE_TOKEN)
    return None if token == WAITING or not lease_runs(document, lifecycle, now) else str(token)


def lease_runs(document: Mapping[str, Any], lifecycle: Lifecycle, now: datetime) -> bool:
    """Say whether a document is leased; nobody waits for a lease that ends in years."""
    if document.get(LEASE_TOKEN) is None:
        return False
    until = past(document.get(LEASE_UNTIL), now + _longest(lifecycle))
    return until is not None and until > now


def waits_until(lifecycle: Lifecycle, due: datetime | None, now: datetime) -> datetime:
    """Say until when a document is left to its own event, which is to come again at a time.

    Then it is clearly overdue: a sweeper takes the document up, and the event, if it comes after
    all, comes too late. Where nobody knows when it will come, because it is parked, that is as late
    as can be.
    """
    overdue = max(lifecycle.lease or _OVERDUE_AFTER, _OVERDUE_AFTER)
    latest = now + _longest(lifecycle)
    return latest if due is None else min(max(due, now) + overdue, latest)


_OVERDUE_AFTER = timedelta(minutes=15)


def _longest(lifecycle: Lifecycle) -> timedelta:
    return max(FARTHEST_CLAIM, lifecycle.lease or FARTHEST_CLAIM)


def _comes_too_late(document: Document, beginning: Beginning) -> bool:
    """It will be given up at the next sweep; or a sweeper has made a newer attempt."""
    attempts = count(document, ATTEMPT_COUNT)
    return attempts >= beginning.lifecycle.most_attempts or (
        sweep_generation(beginning.operation) < count(document, SWEEP_GENERATION)
    )


def _was_claimed_for(document: Document, beginning: Beginning) -> bool:
    """Say whether a sweeper has counted it when it claimed: somebody may have begun since."""
    return 0 < sweep_generation(beginning.operation) == count(document, SWEEP_GENERATION)


def _is_held(document: Document, beginning: Beginning) -> bool:
    token = held_by(document, beginning.lifecycle, beginning.now)
    return token is not None and token != beginning.token and token not in beginning.gone
