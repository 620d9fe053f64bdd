"""What becomes of a delivery: read it, name its work, and turn its end into one unit.

Nothing here touches an engine. A worker runs handlers and commits units; this says which ones.
"""

from collections.abc import Collection
from datetime import datetime

import msgspec

from headway.core.action import DeadLetter, Park, Reason
from headway.core.catalogue import is_of_user
from headway.core.errors import (
    CrashLoopError,
    MalformedEventError,
    RefusedEventError,
    UnroutableEventError,
)
from headway.core.event import decode, open_envelope, read_data, type_of
from headway.core.facts import (
    DocumentsMissing,
    DuplicatesRecognised,
    EventHandedOn,
    EventParked,
    EventRecovered,
    EventRetryScheduled,
    Fact,
    FloodChanged,
    SuspectBegun,
)
from headway.core.failure import Failure, Verdict
from headway.core.health import FloodGuard
from headway.core.origin import origin
from headway.core.policy import RetryConfig, decide
from headway.core.traces import trace
from headway.core.travel import MOST_REFUSALS, Travel, record
from headway.core.writes import target
from headway.ports.bus import Delivery, Done, HandedBack, Later, Parked, Then
from headway.ports.chance import Chance
from headway.ports.commit import Unit
from headway.ports.records import DoneRecord, Ended
from headway.runtime.attempt import Attempt, Ending, Refused, named
from headway.runtime.dead_letters import dead, status_writes, unread
from headway.runtime.health import HealthWatch
from headway.runtime.service import Service, Subscription

_DONE = Done()
_HANDED_BACK = HandedBack()


class Recovery:
    """The rule of one service, applied."""

    def __init__(
        self, service: Service, retry: RetryConfig, chance: Chance, *, worker: str
    ) -> None:
        self.service = service
        self.health = HealthWatch(service.name, service.outage)
        self._types = dict(service.subscriptions.keys())
        """By queue: each carries one."""
        self.floods = {queue: FloodGuard(service.flood) for queue in self._types}
        self._chance = chance
        self._worker = worker
        self.configure(retry)

    def configure(self, retry: RetryConfig) -> None:
        """Take new settings for events whose documents are not visible yet."""
        self.retry = self.service.retry or retry
        self._not_yet = self.retry.policy()

    def watch(self, queue: str, now: datetime, *, permanent: int = 0) -> FloodChanged | None:
        """Tell the guard of a queue how events ended; say if that paused or resumed the queue."""
        guard = self.floods[queue]
        before = guard.paused_since
        guard.ended(now, permanent=permanent)
        return None if guard.paused_since is before else self._changed(queue)

    def resume(self) -> list[FloodChanged]:
        """End every pause, because a person said so."""
        paused = [name for name, guard in self.floods.items() if guard.paused_since is not None]
        for name in paused:
            self.floods[name].resume()
        return [self._changed(name) for name in paused]

    def _changed(self, queue: str) -> FloodChanged:
        guard = self.floods[queue]
        return FloodChanged(
            service=self.service.name,
            event_type=self._types[queue],
            paused=guard.paused_since is not None,
            permanent=guard.permanent,
            handled=guard.handled,
        )

    def read(self, delivery: Delivery, now: datetime) -> Attempt | Ending | Refused:
        """Decode a delivery and name its work; what is no event ends as a dead letter.

        What only this version of the service cannot read is for `refused` to decide.
        """
        subscription = None
        try:
            if delivery.spoilt:
                raise MalformedEventError(delivery.spoilt)  # noqa: TRY301 (as if its bytes were)
            envelope = open_envelope(delivery.body)
            if not delivery.travel.operation:
                delivery = named(delivery, envelope.event_id or self._chance.token())
            event_type = envelope.event_type
            subscription = self.service.subscriptions.get((delivery.queue, event_type))
            if subscription is None:
                # Another version may take it: its type was renamed, or comes to the same queue.
                error = UnroutableEventError(self.service.name, event_type, delivery.queue)
                taken = self.service.subscriptions[delivery.queue, self._types[delivery.queue]]
                return Refused(self, delivery, taken, error)
            event = read_data(envelope, subscription.data)
        except MalformedEventError as error:
            return self._malformed(delivery, subscription, error, now)
        except Exception as error:  # noqa: BLE001 (whatever a type of the user's own raises)
            assert subscription is not None  # noqa: S101 (before it is known, nothing else raises)
            return Refused(self, delivery, subscription, error)
        travel = delivery.travel
        if travel.parked_since is not None or travel.history:
            travel = self.health.forgiven(event_type, travel.resumed(now), now)
        ids: tuple[str, ...] = ()
        try:
            if subscription.documents is not None:
                ids = subscription.document_ids(envelope, event)
            name, key = subscription.name_work(envelope, event, travel.operation)
        except BaseException as error:  # noqa: BLE001 (whatever a function of the user's raises)
            if isinstance(error, Exception) and self._is_permanent(error):
                return Refused(self, delivery, subscription, error, event)
            name = f"{self.service.name}-{event.event_id or travel.operation}"
            unnamed = Attempt(self, delivery, subscription, event, name, travel, ids=ids)
            return self.failed(unnamed, error, now)
        return Attempt(self, delivery, subscription, event, name, travel, key, ids)

    def refused(self, refused: Refused, live: Collection[str], now: datetime) -> Attempt | Ending:
        """Leave an event that this version cannot read to another that is alive, or end it.

        `live`: the versions that take from its queue. Nothing is counted while it waits.
        """
        delivery, error, service = refused.delivery, refused.error, self.service
        travel = delivery.travel.refused(service.version, error, live, now)
        refusals = {each.version: each.error for each in travel.refusals}
        awaited = refused.awaited(live)
        if not awaited or len(refusals) > MOST_REFUSALS:
            told: Exception = error
            if len(refusals) > 1 or travel.awaited:
                grace = service.version_grace
                told = RefusedEventError(service.name, refusals, travel.awaited, grace)
            return self._unfit(refused, told, now)
        if travel.parked_since is None:  # the time that it waits is not its own
            travel = travel.parked_at(now)
        fact = EventHandedOn(
            service=service.name,
            event_type=refused.subscription.event_type,
            version=service.version,
            awaited=awaited,
            error=refusals[service.version],
        )
        then = HandedBack(now + travel.delay_after_refusal(now, self._chance.draw()), travel)
        return Ending(Unit(delivery=delivery, then=then), self, None, (fact,))

    def _malformed(
        self,
        delivery: Delivery,
        subscription: Subscription | None,
        error: MalformedEventError,
        now: datetime,
    ) -> Ending | Refused:
        """End what is no event. Of a known type, another version may read more than this one."""
        if not delivery.travel.operation:
            delivery = named(delivery, self._chance.token())
        if subscription is None and not delivery.spoilt:
            known = (delivery.queue, type_of(delivery.body))
            subscription = self.service.subscriptions.get(known)
        if subscription is None:
            return unread(self, delivery, Reason.MALFORMED, error, now=now)
        return Refused(self, delivery, subscription, error)

    def broken(self, delivery: Delivery, error: Exception, now: datetime) -> Ending:
        """End an event over which we fail ourselves, with as little as it takes."""
        if not delivery.travel.operation:
            delivery = named(delivery, self._chance.token())
        told = RuntimeError(f"{type(error).__qualname__} while Headway prepared this event")
        return unread(self, delivery, Reason.NON_RETRYABLE, told, now=now)

    def done(self, attempt: Attempt, now: datetime) -> Ending:
        """The handler has returned."""
        self.floods[attempt.subscription.queue].uncounted += 1
        if not self.health.untroubled:
            self.health.worked(attempt.subscription.event_type)
        buffer = attempt.buffer
        assert buffer is not None  # noqa: S101 (it was there for the handler)
        writes = buffer.writes
        if attempt.documents:
            writes = [*writes, *status_writes(attempt, now)]
        unit = Unit(
            delivery=attempt.delivery,
            then=_DONE,
            record=self._record(attempt, Ended.DONE, now),
            writes=tuple(writes),
            bodies=buffer.bodies,
            outgoing=tuple(buffer.outgoing),
        )
        missing = _missing(attempt) if attempt.unfound else ()
        if not attempt.travel.failures:
            return Ending(unit, self, attempt, missing, handled=True)
        recovered = EventRecovered(
            service=self.service.name,
            event_type=attempt.subscription.event_type,
            idempotency_key=attempt.idempotency_key,
            retries=attempt.travel.failures,
            elapsed=now - (attempt.travel.first_seen or now),
            handler=attempt.subscription.function,
            last_error=_last_error(attempt.travel),
        )
        return Ending(unit, self, attempt, (*missing, recovered), handled=True)

    def failed(self, attempt: Attempt, error: BaseException, now: datetime) -> Ending:
        """The handler has raised, or its commit was refused: classify, decide, carry out."""
        travel, event_type = attempt.travel, attempt.subscription.event_type
        failure = self._failure(attempt, error, now)
        diagnosis = failure.diagnosis
        health, changed = self.health.failed(event_type, diagnosis, travel.operation, now)
        policy = self._not_yet if diagnosis.verdict is Verdict.NOT_YET else self.service.transient
        # Until its first failure an event only waits: in its queue, in hand, or while it is paused.
        has_begun = travel.failures or travel.parked
        first_seen = (travel.first_seen if has_begun else None) or attempt.started or now
        history = travel.history_for(diagnosis.verdict, first_seen=first_seen)
        facts: list[Fact] = [changed] if changed else []
        action = decide(policy, history, diagnosis, health, now=now, draw=self._chance.draw())
        if isinstance(action, Park):
            ending = self.parked(attempt, action.why, now)
            return msgspec.structs.replace(ending, facts=(*facts, *ending.facts))
        after = self._counted(attempt, failure, first_seen=first_seen)
        if isinstance(action, DeadLetter):
            ending = dead(attempt, after, action.reason, error, now=now, failure=failure)
            is_answer = is_of_user(diagnosis)
            if action.reason is Reason.NON_RETRYABLE and is_answer:
                self.floods[attempt.subscription.queue].uncounted += 1
            return msgspec.structs.replace(
                ending,
                facts=(*facts, *ending.facts),
                permanent=action.reason is Reason.NON_RETRYABLE and not is_answer,
            )
        facts.append(
            EventRetryScheduled(
                service=self.service.name,
                event_type=event_type,
                idempotency_key=attempt.idempotency_key,
                failure=failure,
                retry=history.attempts,
                max_retries=policy.max_attempts - 1,
                delay=action.delay,
                age=now - first_seen - travel.parked,
                ttl=policy.ttl,
                version=self.service.version,
                handler=attempt.subscription.function,
            )
        )
        return Ending(_moved(attempt, Later(action.due, after)), self, attempt, tuple(facts))

    def parked(self, attempt: Attempt, rule: str, now: datetime) -> Ending:
        """Its dependency is down: let it wait, and count nothing."""
        due = self.health.next_probe(attempt.subscription.event_type) or now
        fact = EventParked(
            service=self.service.name,
            event_type=attempt.subscription.event_type,
            idempotency_key=attempt.idempotency_key,
            rule=rule,
        )
        unit = _moved(attempt, Parked(due, attempt.travel.parked_at(now)))
        return Ending(unit, self, attempt, (fact,))

    def postponed(self, attempt: Attempt, until: datetime) -> Ending:
        """Somebody else has one of its documents in hand: let it wait, and count nothing."""
        # Nor is anything forgotten: if that was its own worker, which died, it may be a crash loop.
        return Ending(_moved(attempt, HandedBack(until)), self, attempt)

    def unsettled(self, ending: Ending, until: datetime) -> Ending:
        """The engine fails for its end alone: let it come again, and count nothing."""
        unit = Unit(delivery=ending.unit.delivery, then=HandedBack(until))
        return Ending(unit, self, ending.attempt)

    def unfit(self, attempt: Attempt, refused: Refused, now: datetime) -> Ending:
        """End an event that no version of the service can read: no attempt will help."""
        failure = self._failure(attempt, refused.error, now)
        first_seen = attempt.travel.first_seen or now
        travel = self._counted(attempt, failure, first_seen=first_seen)
        told = refused.told or refused.error
        ending = dead(attempt, travel, Reason.NON_RETRYABLE, told, now=now, failure=failure)
        if refused.event is None or is_of_user(failure.diagnosis):
            return ending
        # A function of the service may be a bad deploy. A field that the event lacks is its
        # publisher's fault.
        named, dedup = attempt.subscription.documents, attempt.subscription.dedup
        by_function = callable(named[1] if named is not None and not attempt.ids else dedup)
        return msgspec.structs.replace(ending, permanent=by_function)

    def handed_back(self, attempt: Attempt) -> Ending:
        """Nothing has happened to it."""
        return Ending(_moved(attempt, _HANDED_BACK), self, attempt)

    def known(self, attempt: Attempt, found: DoneRecord) -> Ending:
        """It has ended before: send what the record still holds, and settle."""
        same = (found.queue, found.operation) == (
            attempt.delivery.queue,
            attempt.travel.operation,
        )
        unit = Unit(
            delivery=attempt.delivery,
            then=_DONE,
            record=found if same else self._record(attempt, Ended.DUPLICATE, found.at),
            outgoing=found.outgoing,
            letter=found.letter,
            failed_queue=found.failed_queue,
            resumes=same,
        )
        return Ending(unit, self, attempt, (self._recognised(attempt, "done"),))

    def superseded(self, attempt: Attempt, now: datetime) -> Ending:
        """Nothing is left to do for its documents, or others do it."""
        unit = Unit(
            delivery=attempt.delivery,
            then=_DONE,
            record=self._record(attempt, Ended.SUPERSEDED, now),
        )
        return Ending(unit, self, attempt, (self._recognised(attempt, "superseded"),))

    def suspected(self, attempt: Attempt) -> SuspectBegun:
        """Say that an event is run alone, because its workers died."""
        return SuspectBegun(
            service=self.service.name,
            event_type=attempt.subscription.event_type,
            idempotency_key=attempt.idempotency_key,
            returns=attempt.delivery.returns,
        )

    def crash_loop(self, attempt: Attempt, now: datetime) -> Ending:
        """Its worker died twice while it ran alone."""
        error = CrashLoopError(
            attempt.delivery.returns,
            attempt.delivery.begins,
            origin(attempt.subscription.handler),
        )
        return dead(attempt, attempt.travel, Reason.CRASH_LOOP, error, now=now)

    def without_status(self, ending: Ending, document: str | None = None) -> Ending:
        """The same end, with its documents left as they are, or the one of them that is named."""
        writes = () if document is None else ending.unit.writes
        kept = tuple(write for write in writes if target(write) != document)
        return msgspec.structs.replace(
            ending, unit=msgspec.structs.replace(ending.unit, writes=kept)
        )

    def plainer(self, ending: Ending, error: Exception, now: datetime) -> Ending | None:
        """Give the plainest dead letter, for one that cannot be committed; None: it is that.

        It has a key of its own: the key of the work may be what the store refuses.
        """
        if ending.unit.letter is None or ending.attempt is None:
            return None
        delivery = ending.unit.delivery
        event_type = ending.attempt.subscription.event_type
        return unread(self, delivery, Reason.NON_RETRYABLE, error, now=now, event_type=event_type)

    def _record(self, attempt: Attempt, ended: Ended, now: datetime) -> DoneRecord:
        key = attempt.key
        if ended in {Ended.DUPLICATE, Ended.SUPERSEDED}:  # the key is for whoever does the work
            key = f"{key}/{ended}/{attempt.travel.operation}"
        return DoneRecord(
            key=key,
            operation=attempt.travel.operation,
            queue=attempt.delivery.queue,
            ended=ended,
            at=now,
        )

    def _recognised(self, attempt: Attempt, why: str) -> DuplicatesRecognised:
        return DuplicatesRecognised(
            service=self.service.name,
            event_type=attempt.subscription.event_type,
            count=1,
            why=why,
            idempotency_key=attempt.idempotency_key,
        )

    def _unfit(self, refused: Refused, told: Exception, now: datetime) -> Attempt | Ending:
        """End an event that cannot be read: no attempt will help. `told`: what the letter says.

        Its documents are started first, so that they show how it ended.
        """
        delivery, subscription, error = refused.delivery, refused.subscription, refused.error
        if isinstance(error, UnroutableEventError):
            event_type = error.event_type
            return unread(self, delivery, Reason.UNROUTABLE, told, now=now, event_type=event_type)
        try:
            event = refused.event or decode(delivery.body)
        except MalformedEventError as malformed:
            why = malformed if told is error else told
            return unread(self, delivery, Reason.MALFORMED, why, now=now)
        try:
            ids = tuple(subscription.ids(decode(delivery.body)))
        except BaseException:  # noqa: BLE001 (then the letter names none)
            ids = ()
        name = f"{self.service.name}-{event.event_id or delivery.travel.operation}"
        travel = delivery.travel.resumed(now)
        attempt = Attempt(self, delivery, subscription, event, name, travel, ids=ids)
        refused.told = told
        attempt.refusal = refused
        return attempt if ids else self.unfit(attempt, refused, now)

    def _is_permanent(self, error: Exception) -> bool:
        return self.service.classifier.classify(error).verdict is Verdict.PERMANENT

    def _failure(self, attempt: Attempt, error: BaseException, now: datetime) -> Failure:
        return Failure(
            attempt=attempt.travel.attempt,
            at=now,
            error=error,
            diagnosis=self.service.classifier.classify(error),
        )

    def _counted(self, attempt: Attempt, failure: Failure, *, first_seen: datetime) -> Travel:
        taken = record(
            failure,
            worker=self._worker,
            version=self.service.version,
            traceback=trace(failure.error),
        )
        return attempt.travel.failed(taken, first_seen=first_seen)


def _missing(attempt: Attempt) -> tuple[Fact, ...]:
    subscription = attempt.subscription
    assert subscription.documents is not None  # noqa: S101 (else nothing is looked for)
    missing = DocumentsMissing(
        service=subscription.service,
        event_type=subscription.event_type,
        handler=subscription.function,
        collection=subscription.documents[0],
        ids=attempt.unfound,
    )
    return (missing,)


def _last_error(travel: Travel) -> str:
    failed = [each for each in travel.history if each.verdict != Verdict.NOT_YET]
    return f"{failed[-1].error_type}: {failed[-1].message}" if failed else ""


def _moved(attempt: Attempt, then: Then) -> Unit:
    return Unit(delivery=attempt.delivery, then=then)
