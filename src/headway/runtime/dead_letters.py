"""The end without success: a letter, a record that it ended so, and one event that tells others."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from headway.core.action import Reason
from headway.core.beginning import waits_until
from headway.core.document import ATTEMPT_COUNT, LAST_ERROR, LAST_OPERATION, LEASE_TOKEN
from headway.core.event import DoneKey
from headway.core.facts import DeadLettered
from headway.core.failure import Failure, words
from headway.core.letter import Letter, write_letter
from headway.core.lifecycle import Lifecycle
from headway.core.secrets import hidden
from headway.core.travel import LONGEST_MESSAGE, Travel
from headway.core.writes import Document, Increment, Update, Write
from headway.ports.bus import Delivery, Done
from headway.ports.commit import Unit
from headway.ports.records import DoneRecord, Ended
from headway.runtime.attempt import Attempt, Ending
from headway.runtime.failed_event import failed_event

if TYPE_CHECKING:
    from headway.runtime.recover import Recovery

_DONE = Done()
DATA_RULE = "data"
"""Named as the rule by which an event was refused whose data is not of the handler's type."""


def dead(
    attempt: Attempt,
    travel: Travel,
    reason: Reason,
    error: BaseException,
    *,
    now: datetime,
    failure: Failure | None = None,
) -> Ending:
    """End an event that could be read."""
    recovery = attempt.recovery
    letter = _letter(
        recovery,
        attempt.delivery,
        travel,
        reason,
        idempotency_key=attempt.idempotency_key,
        event_type=attempt.subscription.event_type,
        error_type=type(error).__name__,
        message=words(error),
        now=now,
        done_key=attempt.key,
        documents=_documents(attempt),
    )
    unit = Unit(
        delivery=attempt.delivery,
        then=_DONE,
        record=DoneRecord(
            key=attempt.key,
            operation=travel.operation,
            queue=attempt.delivery.queue,
            ended=Ended.FAILED,
            at=now,
        ),
        writes=status_writes(attempt, now, error, _permanent(attempt, reason, failure)),
        outgoing=failed_event(attempt, travel, error, now),
        letter=letter,
        failed_queue=recovery.service.failed_queue,
    )
    handler = attempt.subscription.function
    told = _told(recovery, letter, reason, travel, now=now, failure=failure, handler=handler)
    return Ending(
        unit,
        recovery,
        attempt,
        (told,),
        error=error,
    )


def unread(
    recovery: "Recovery",
    delivery: Delivery,
    reason: Reason,
    error: Exception,
    *,
    now: datetime,
    event_type: str = "",
) -> Ending:
    """End what is no event at all, or none that anybody here handles; its bytes are kept."""
    travel = delivery.travel
    letter = _letter(
        recovery,
        delivery,
        travel,
        reason,
        idempotency_key=f"{recovery.service.name}-{travel.operation}",
        event_type=event_type,
        error_type=type(error).__name__,
        message=words(error),
        now=now,
    )
    key = DoneKey(recovery.service.name, event_type, letter.idempotency_key, travel.generation)
    unit = Unit(
        delivery=delivery,
        then=_DONE,
        record=DoneRecord(
            key=str(key),
            operation=travel.operation,
            queue=delivery.queue,
            ended=Ended.FAILED,
            at=now,
        ),
        letter=letter,
        failed_queue=recovery.service.failed_queue,
    )
    told = _told(recovery, letter, reason, travel, now=now)
    return Ending(unit, recovery, None, (told,), error=error)


def _permanent(attempt: Attempt, reason: Reason, failure: Failure | None) -> Document | None:
    """Say by which rule, and in which version, an event failed permanently, if it did."""
    if reason is not Reason.NON_RETRYABLE or failure is None:
        return None
    refusal = attempt.refusal
    is_of_data = refusal is not None and refusal.event is None
    rule = DATA_RULE if is_of_data else failure.diagnosis.rule
    return {"rule": rule, "version": attempt.recovery.service.version}


def status_writes(
    attempt: Attempt,
    now: datetime,
    error: BaseException | None = None,
    permanent: Document | None = None,
) -> tuple[Write, ...]:
    """Set the status of the documents that an event has begun to work on, where they are its own.

    Whoever lost a lease, or was overtaken by another operation, changes nothing any more.
    """
    lifecycle = attempt.subscription.lifecycle
    if lifecycle is None:
        return ()
    deferred: Collection[str] = ()
    if error is None:
        changes = lifecycle.on_success()
        deferred = () if attempt.buffer is None else attempt.buffer.put_off
    else:
        message = hidden(words(error))[:LONGEST_MESSAGE]
        changes = lifecycle.on_failure(type(error).__name__, message, now, permanent)
    expect = {LAST_OPERATION: attempt.travel.operation}
    if attempt.token:
        expect[LEASE_TOKEN] = attempt.token  # after it: whose it is says more than who lost it
    ended = tuple(
        Update(lifecycle.collection, each, changes, expect)
        for each in attempt.documents
        if each not in deferred
    )
    return ended if not deferred else (*ended, *_deferred(attempt, lifecycle, expect, now))


def _deferred(
    attempt: Attempt, lifecycle: Lifecycle, expect: Document, now: datetime
) -> Iterator[Write]:
    """Leave documents pending, and take back the attempt that was counted when this one started.

    An operation that failed before it deferred stays counted: a handler that fails and defers in
    turn has to end. Attempts of earlier operations are kept either way.
    """
    buffer = attempt.buffer
    assert buffer is not None  # noqa: S101 (its handler deferred them)
    changes = lifecycle.on_wait(waits_until(lifecycle, now, now))
    if attempt.travel.history:
        last = attempt.travel.history[-1]
        changes[LAST_ERROR] = {"type": last.error_type, "message": last.message, "at": last.at}
    counted_anew = {
        write.id
        for write in buffer.writes
        if isinstance(write, Update)
        and write.collection == lifecycle.collection
        and ATTEMPT_COUNT in write.changes
    }
    for each in attempt.documents:
        if each not in buffer.put_off:
            continue
        yield Update(lifecycle.collection, each, changes, expect)
        if not attempt.travel.failures and each not in counted_anew:
            yield Increment(lifecycle.collection, each, ATTEMPT_COUNT, -1)


def _letter(
    recovery: "Recovery",
    delivery: Delivery,
    travel: Travel,
    reason: Reason,
    *,
    idempotency_key: str,
    event_type: str,
    error_type: str,
    message: str,
    now: datetime,
    done_key: str = "",
    documents: tuple[str, Sequence[str]] = ("", ()),
) -> Letter:
    return write_letter(
        delivery.body,
        queue=delivery.queue,
        travel=travel,
        idempotency_key=idempotency_key,
        service=recovery.service.name,
        event_type=event_type,
        reason=reason,
        last_error=hidden(f"{error_type}: {message}")[:LONGEST_MESSAGE],
        error_type=error_type,
        now=now,
        done_key=done_key,
        collection=documents[0],
        document_ids=documents[1],
        version=recovery.service.version,
    )


def _documents(attempt: Attempt) -> tuple[str, Sequence[str]]:
    """Give the collection and the ids of the documents that an event is about."""
    if attempt.subscription.documents is None or not attempt.ids:
        return "", ()
    return attempt.subscription.documents[0], attempt.ids


def _told(
    recovery: "Recovery",
    letter: Letter,
    reason: Reason,
    travel: Travel,
    *,
    now: datetime,
    failure: Failure | None = None,
    handler: str = "",
) -> DeadLettered:
    return DeadLettered(
        service=letter.service_name,
        event_type=letter.event_type,
        idempotency_key=letter.idempotency_key,
        letter_id=letter.letter_id,
        failed_queue=recovery.service.failed_queue,
        reason=reason,
        attempts=travel.failures,
        error_type=letter.error_type,
        last_error=letter.last_error,
        elapsed=now - (travel.first_seen or now),
        failure=failure,
        version=letter.version,
        handler=handler,
    )
