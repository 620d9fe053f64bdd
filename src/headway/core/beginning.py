"""An operation begins to work on documents: counted once, refused where it comes too late."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any

from headway.core.document import (
    ATTEMPT_COUNT,
    CLAIM_BEFORE,
    CLAIM_TOKEN,
    CLAIM_UNTIL,
    LAST_ATTEMPT_TIME,
    LAST_OPERATION,
    LEASE_TOKEN,
    LEASE_UNTIL,
    MOST,
    STATUS,
    SWEEP_GENERATION,
    count,
    moment,
)
from headway.core.lifecycle import Lifecycle, State
from headway.core.travel import instant
from headway.core.writes import Document

_SWEPT = re.compile(r"sweep-([0-9]{1,9}):")
_LONGEST_ID = 150


def sweep_operation(collection: str, document_id: str, generation: int) -> str:
    """Name the attempt that a sweeper makes: the same, however often it has to be published.

    >>> sweep_operation("messages", "m1", 2)
    'sweep-2:messages:m1'
    """
    named = f"{collection}:{document_id}"
    if len(named.encode()) > _LONGEST_ID:
        named = sha256(named.encode()).hexdigest()
    return f"sweep-{generation}:{named}"


def sweep_generation(operation: str) -> int:
    """Say in which generation of a document an operation was made; 0: no sweeper made it.

    >>> sweep_generation("sweep-2:messages:m1"), sweep_generation("order-17")
    (2, 0)
    """
    found = _SWEPT.match(operation)
    return int(found[1]) if found else 0


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


class How(StrEnum):
    """What an operation is told about one document."""

    BEGUN = "begun"
    OVER = "over"
    """It is processed, or belongs to a newer operation: there is nothing left to do for this."""
    BUSY = "busy"
    """Somebody else has it in hand."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What became of one document, and how it is now."""

    how: How
    document: Document


def begun(document: Document, beginning: Beginning) -> Begun:
    """Say what an operation makes of one document; nothing is changed but for `BEGUN`.

    An operation is counted once, however often it begins.
    """
    lifecycle = beginning.lifecycle
    state = lifecycle.state(document)
    same = document.get(LAST_OPERATION) == beginning.operation
    if state is State.PROCESSED:
        return Begun(How.OVER, document)
    if not same and not beginning.deliberate and _is_overtaken(document, state, beginning):
        return Begun(How.OVER, document)
    if lifecycle.lease is not None and _is_held(document, beginning):
        return Begun(How.BUSY, document)
    after = {
        **document,
        ATTEMPT_COUNT: min(count(document, ATTEMPT_COUNT) + (not same), MOST),
        LAST_OPERATION: beginning.operation,
        LAST_ATTEMPT_TIME: instant(beginning.now),
    }
    # Where times say that it failed, they may be of the same moment: then it still looks so.
    if state in {State.FAILED, State.GIVEN_UP} or lifecycle.state(after) is State.FAILED:
        after[STATUS] = State.PENDING.value  # it is in somebody's hands again
    if document.get(CLAIM_TOKEN) is not None:
        after.update(UNCLAIMED)  # its event has evidently arrived
    if lifecycle.lease is not None:
        until = instant(beginning.now + lifecycle.lease)
        after.update({LEASE_TOKEN: beginning.token, LEASE_UNTIL: until})
    return Begun(How.BEGUN, after)


UNCLAIMED: Mapping[str, Any] = {CLAIM_TOKEN: None, CLAIM_UNTIL: None, CLAIM_BEFORE: None}


def _is_overtaken(document: Document, state: State, beginning: Beginning) -> bool:
    generation = count(document, SWEEP_GENERATION)
    return state is State.GIVEN_UP or sweep_generation(beginning.operation) < generation


def _is_held(document: Document, beginning: Beginning) -> bool:
    token = document.get(LEASE_TOKEN)
    if token is None or token == beginning.token:
        return False
    until = moment(document.get(LEASE_UNTIL))
    return until is not None and until > beginning.now
