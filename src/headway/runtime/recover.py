"""What becomes of a delivery: read it, name its work, and turn its end into one unit.

Nothing here touches an engine. A worker runs handlers and commits units; this says which ones.
"""

from datetime import datetime

import msgspec

from headway.core.action import DeadLetter, Park, Reason
from headway.core.errors import CrashLoopError, MalformedEventError, UnroutableEventError
from headway.core.event import decode, open_envelope, read_data
from headway.core.facts import (
    DuplicatesRecognised,
    EventParked,
    EventRecovered,
    EventRetryScheduled,
    Fact,
    FloodChanged,
    SuspectBegun,
)
from headway.core.failure import Failure, Verdict
from headway.core.health import FloodGuard
from headway.core.policy import RetryConfig, decide
from headway.core.traces import trace
from headway.core.travel import Travel, record
from headway.core.writes import target
from headway.ports.bus import Delivery, Done, HandedBack, Later, Parked, Then
from headway.ports.chance import Chance
from headway.ports.commit import Unit
from headway.ports.records import DoneRecord, Ended
from headway.runtime.attempt import Attempt, Ending, named
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
        self.flood = FloodGuard(service.flood)
        self._successes = 0
        """That the flood guard has not been told of yet: it is asked for each group only."""
        self._chance = chance
        self._worker = worker
        self.configure(retry)

    def configure(self, retry: RetryConfig) -> None:
        """Take new settings for events whose documents are not visible yet."""
        self.retry = self.service.retry or retry
        self._not_yet = self.retry.policy()

    @property
    def paused(self) -> bool:
        """Too many events end as letters: nothing is run but a probe now and then."""
        return self.flood.paused_since is not None

    def watch(self, now: datetime, *, permanent: int = 0) -> FloodChanged | None:
        """Tell the flood guard how events ended; say if it has just paused the service, or not."""
        before = self.paused
        if self._successes:
            self.flood.ended(now, permanent=False, count=self._successes)
            self._successes = 0
        if permanent:
            self.flood.ended(now, permanent=True, count=permanent)
        if before is self.paused:
            return None
        return FloodChanged(
            service=self.service.name,
            paused=self.paused,
            permanent=self.flood.permanent,
            handled=self.flood.handled,
        )

    def read(self, delivery: Delivery, now: datetime) -> Attempt | Ending:
        """Decode a delivery and name its work; what cannot be read ends as a dead letter."""
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
                error = UnroutableEventError(self.service.name, event_type, delivery.queue)
                return unread(
                    self, delivery, Reason.UNROUTABLE, error, now=now, event_type=event_type
                )
            event = read_data(envelope, subscription.data)
        except MalformedEventError as error:
            if not delivery.travel.operation:
                delivery = named(delivery, self._chance.token())
            return unread(self, delivery, Reason.MALFORMED, error, now=now)
        except Exception as error:  # noqa: BLE001 (whatever a type of the user's own raises)
            return self._unfit(delivery, subscription, error, now)
        travel = delivery.travel
        if travel.parked_since is not None or travel.history:
            travel = self.health.forgiven(event_type, travel.resumed(now), now)
        ids: tuple[str, ...] = ()
        try:
            ids = subscription.document_ids(envelope, event)
            name, key = subscription.name_work(envelope, event, travel.operation)
        except BaseException as error:  # noqa: BLE001 (whatever a function of the user's raises)
            name = f"{self.service.name}-{event.event_id or travel.operation}"
            unnamed = Attempt(self, delivery, subscription, event, name, travel, ids=ids)
            return self.failed(unnamed, error, now)
        return Attempt(self, delivery, subscription, event, name, travel, key, ids)

    def broken(self, delivery: Delivery, error: Exception, now: datetime) -> Ending:
        """End an event over which we fail ourselves, with as little as it takes."""
        if not delivery.travel.operation:
            delivery = named(delivery, self._chance.token())
        told = RuntimeError(f"{type(error).__qualname__} while Headway prepared this event")
        return unread(self, delivery, Reason.NON_RETRYABLE, told, now=now)

    def done(self, attempt: Attempt, now: datetime) -> Ending:
        """The handler has returned."""
        self._successes += 1
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
            bodies=tuple(buffer.bodies),
            outgoing=tuple(buffer.outgoing),
        )
        if not attempt.travel.failures:
            return Ending(unit, self, attempt, (), handled=True)
        recovered = EventRecovered(
            service=self.service.name,
            event_type=attempt.subscription.event_type,
            idempotency_key=attempt.idempotency_key,
            retries=attempt.travel.failures,
            elapsed=now - (attempt.travel.first_seen or now),
        )
        return Ending(unit, self, attempt, (recovered,), handled=True)

    def failed(self, attempt: Attempt, error: BaseException, now: datetime) -> Ending:
        """The handler has raised, or its commit was refused: classify, decide, carry out."""
        travel, event_type = attempt.travel, attempt.subscription.event_type
        failure = self._failure(attempt, error, now)
        diagnosis = failure.diagnosis
        health, changed = self.health.failed(event_type, diagnosis, travel.operation, now)
        policy = self._not_yet if diagnosis.verdict is Verdict.NOT_YET else self.service.transient
        first_seen = travel.first_seen or attempt.started or now
        history = travel.history_for(diagnosis.verdict, first_seen=first_seen)
        facts: list[Fact] = [changed] if changed else []
        action = decide(policy, history, diagnosis, health, now=now, draw=self._chance.draw())
        if isinstance(action, Park):
            ending = self.parked(attempt, action.why, now)
            return msgspec.structs.replace(ending, facts=(*facts, *ending.facts))
        after = self._counted(attempt, failure, first_seen=first_seen)
        if isinstance(action, DeadLetter):
            ending = dead(attempt, after, action.reason, error, now=now, failure=failure)
            return msgspec.structs.replace(ending, facts=(*facts, *ending.facts))
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
        error = CrashLoopError(attempt.delivery.returns, attempt.delivery.begins)
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
        )

    def _unfit(
        self,
        delivery: Delivery,
        subscription: Subscription | None,
        error: BaseException,
        now: datetime,
    ) -> Ending:
        """End an event whose data is not of the handler's type: no attempt will help."""
        try:
            event = decode(delivery.body)
        except MalformedEventError as malformed:
            return unread(self, delivery, Reason.MALFORMED, malformed, now=now)
        assert subscription is not None  # noqa: S101 (before it is known, nothing else raises)
        try:
            ids = tuple(subscription.ids(decode(delivery.body)))
        except BaseException:  # noqa: BLE001 (then the letter names none)
            ids = ()
        name = f"{self.service.name}-{event.event_id or delivery.travel.operation}"
        travel = delivery.travel
        attempt = Attempt(self, delivery, subscription, event, name, travel, ids=ids)
        failure = self._failure(attempt, error, now)
        travel = self._counted(attempt, failure, first_seen=now)
        return dead(attempt, travel, Reason.NON_RETRYABLE, error, now=now, failure=failure)

    def _failure(self, attempt: Attempt, error: BaseException, now: datetime) -> Failure:
        return Failure(
            attempt=attempt.travel.attempt,
            at=now,
            error=error,
            diagnosis=self.service.classifier.classify(error),
        )

    def _counted(self, attempt: Attempt, failure: Failure, *, first_seen: datetime) -> Travel:
        taken = record(failure, worker=self._worker, traceback=trace(failure.error))
        return attempt.travel.failed(taken, first_seen=first_seen)


def _moved(attempt: Attempt, then: Then) -> Unit:
    return Unit(delivery=attempt.delivery, then=then)
